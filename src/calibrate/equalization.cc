#include "calibrate/equalization.h"

#include <algorithm>
#include <cmath>

#include "quantize/column_scales.h"

namespace ballast {

std::vector<float> equalize(double alpha, std::span<const float> importance, std::span<const float> largest) {
  constexpr double kMost = kMostDoublings;
  std::vector<double> exponents(importance.size());
  double sum = 0;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const double input = std::log2(std::max(static_cast<double>(importance[i]), 1e-12)) / 2;
    const double weight = largest[i] > 0 ? std::log2(static_cast<double>(largest[i])) : 0;
    exponents[i] = alpha * input - (1 - alpha) * weight;
    sum += exponents[i];
  }
  const double middle = exponents.empty() ? 0 : sum / static_cast<double>(exponents.size());
  std::vector<float> restore;
  for (const double exponent : exponents) {
    restore.push_back(std::exp2(static_cast<float>(-std::clamp(std::round(exponent - middle), -kMost, kMost))));
  }
  return restore;
}

}  // namespace ballast
