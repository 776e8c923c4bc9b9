#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>

namespace ballast {

// False for F6, which has no standard packing.
constexpr bool can_decode(DType dtype) { return dtype != DType::kF6E2M3 && dtype != DType::kF6E3M2; }

// Numbers per stored value: 2 for complex values.
constexpr unsigned parts(DType dtype) { return info(dtype).kind == NumberKind::kComplex ? 2 : 1; }

// Converts out.size() numbers to doubles. `bytes` must hold exactly that many. In F4 the low nibble comes first.
void decode(DType dtype, std::span<const std::byte> bytes, std::span<double> out);

}  // namespace ballast
