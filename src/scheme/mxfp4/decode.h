#pragma once

#include <cstdint>
#include <memory>

#include <ballast/model.h>

#include "scheme/layer.h"

namespace ballast {

// Experts of gpt-oss: for each, a matrix of rows in groups of 32 columns, stored as 16 bytes of E2M1 pairs, low nibble first,
// with an E8M0 scale.
struct Mxfp4Experts {
  static constexpr std::uint64_t kGroupSize = 32;
  static constexpr std::uint64_t kGroupBytes = kGroupSize / 2;

  const TensorInfo* blocks = nullptr;
  const TensorInfo* scales = nullptr;
  std::uint64_t experts = 0;
  std::uint64_t rows = 0;  // of one expert
  std::uint64_t groups = 0;

  std::uint64_t columns() const { return groups * kGroupSize; }
};

// Decodes to [experts, rows, columns].
std::unique_ptr<const RowDecoder> decode_experts(const Mxfp4Experts& experts);
// Decodes to [experts, columns, rows].
std::unique_ptr<const RowDecoder> decode_transposed_experts(const Mxfp4Experts& experts);

}  // namespace ballast
