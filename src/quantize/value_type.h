#pragma once

#include <cstdint>
#include <optional>

#include <ballast/dtype.h>
#include <ballast/quantize_type.h>

namespace ballast {

// What the code of a value stands for, before scaling.
enum class Element : std::uint8_t {
  kInteger,  // 0 to 2^bits - 1
  kFloat4,   // 4 bits: a sign, and 0, 0.5, 1, 1.5, 2, 3, 4 or 6
  kFloat8,   // 8 bits: F8_E4M3
};

// A type whose values are floats. It has no offsets.
struct FloatType {
  QuantizeType type;
  Element element;
  std::optional<DType> scales;  // F8_E8M0 or F8_E4M3; empty: the scheme decides
  unsigned bits;
  unsigned group_size;  // of kFp8: rows and columns of a block
};

// Null for kInt.
const FloatType* float_type(QuantizeType type);

}  // namespace ballast
