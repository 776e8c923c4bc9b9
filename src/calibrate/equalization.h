#pragma once

#include <array>
#include <span>
#include <vector>

namespace ballast {

// How much of the scale of a column comes from its inputs, and how much from its weights.
inline constexpr std::array kEqualizations{0.0, 0.25, 0.5, 0.75, 1.0};

// What columns are to be multiplied by when they are read, for RowFormat::restore, if they are scaled by x^alpha / w^(1 - alpha)
// before they are coded: x is the root of the importance of a column, w its largest weight. Scales are the nearest powers of
// two, so that nothing is lost by them, and about 1 on average.
std::vector<float> equalize(double alpha, std::span<const float> importance, std::span<const float> largest);

}  // namespace ballast
