#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>

namespace ballast {

// The number of values that are NaN or infinite.
std::uint64_t count_nonfinite(DType dtype, std::span<const std::byte> bytes);

}  // namespace ballast
