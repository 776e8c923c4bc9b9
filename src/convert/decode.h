#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>

namespace ballast {

// Whether the values of a dtype can be read one by one; F6 has no agreed packing.
constexpr bool can_decode(DType dtype) { return dtype != DType::kF6E2M3 && dtype != DType::kF6E3M2; }

// Numbers that one stored value stands for: a complex one is two.
constexpr unsigned parts(DType dtype) { return info(dtype).kind == NumberKind::kComplex ? 2 : 1; }

// Reads out.size() numbers as doubles. `bytes` holds exactly these, in the file's order; F4 has the low nibble first.
void decode(DType dtype, std::span<const std::byte> bytes, std::span<double> out);

}  // namespace ballast
