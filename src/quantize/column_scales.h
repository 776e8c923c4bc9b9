#pragma once

#include <span>

#include <ballast/error.h>

namespace ballast {

// Columns may be scaled by powers of two from 2^-12 to 2^12, far from what a float cannot hold.
inline constexpr int kMostDoublings = 12;

// Whether columns can be multiplied by these.
Result<void> check_restore(std::span<const float> restore);

}  // namespace ballast
