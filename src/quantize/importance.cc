#include "quantize/importance.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <vector>

namespace ballast {

float least_importance(std::span<const float> importance) {
  constexpr float kPart = 1e-4F;
  std::vector<float> positive;
  std::ranges::copy_if(importance, std::back_inserter(positive), [](float value) { return value > 0; });
  if (positive.empty()) return kPart;
  const auto middle = positive.begin() + static_cast<std::ptrdiff_t>(positive.size() / 2);
  std::ranges::nth_element(positive, middle);
  return std::max(*middle * kPart, std::numeric_limits<float>::min());
}

}  // namespace ballast
