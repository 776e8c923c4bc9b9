#include "calibrate/equalization.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

namespace ballast {
namespace {

constexpr int kMostDoublings = 12;  // far from what a float cannot hold

}  // namespace

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

Result<void> check_restore(std::span<const float> restore) {
  const auto is_allowed = [](float scale) {
    int exponent = 0;
    return std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5F && std::abs(exponent - 1) <= kMostDoublings;
  };
  const auto bad = std::ranges::find_if_not(restore, is_allowed);
  if (bad == restore.end()) return {};
  return fail(Errc::kCorrupt, "the scale of column {} is {}, it must be a power of two from 2^-{} to 2^{}", bad - restore.begin(),
              *bad, kMostDoublings, kMostDoublings);
}

}  // namespace ballast
