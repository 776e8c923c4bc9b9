#pragma once

#include <span>

#include <ballast/error.h>

namespace ballast {

// Column scales are powers of two from 2^-12 to 2^12, so that no product leaves the range of a float.
inline constexpr int kMostDoublings = 12;

// kCorrupt for a scale that is not one of these.
Result<void> check_restore(std::span<const float> restore);

}  // namespace ballast
