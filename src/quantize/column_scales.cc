#include "quantize/column_scales.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

namespace ballast {

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
