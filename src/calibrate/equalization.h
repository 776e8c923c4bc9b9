#pragma once

#include <array>
#include <span>
#include <vector>

namespace ballast {

// Values of alpha to try: how much of a column's scale comes from its inputs, the rest from its weights.
inline constexpr std::array kEqualizations{0.0, 0.25, 0.5, 0.75, 1.0};

// RowFormat::restore for columns that are scaled by x^alpha / w^(1 - alpha) before quantizing: x is the square root of a column's
// importance, w its largest weight. Scales are rounded to powers of two, so that scaling is exact, and their mean is about 1.
std::vector<float> equalize(double alpha, std::span<const float> importance, std::span<const float> largest);

}  // namespace ballast
