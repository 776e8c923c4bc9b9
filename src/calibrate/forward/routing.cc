#include "calibrate/forward/routing.h"

#include <algorithm>
#include <numeric>

#include "calibrate/forward/kernels.h"

namespace ballast {

std::vector<std::vector<RoutedToken>> route(std::span<float> scores, const Experts& experts) {
  std::vector<std::vector<RoutedToken>> routed(experts.count);
  std::vector<std::uint64_t> order(experts.count);
  for (std::uint64_t token = 0; token < scores.size() / experts.count; ++token) {
    const std::span row = scores.subspan(token * experts.count, experts.count);
    softmax(row);
    std::iota(order.begin(), order.end(), 0);
    const auto chosen = order.begin() + static_cast<std::ptrdiff_t>(experts.per_token);
    std::partial_sort(order.begin(), chosen, order.end(),
                      [&](std::uint64_t a, std::uint64_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    float sum = 0;
    for (auto each = order.begin(); each != chosen; ++each) sum += row[*each];
    for (auto each = order.begin(); each != chosen; ++each) {
      routed[*each].push_back({.token = token, .weight = experts.normalize ? row[*each] / sum : row[*each]});
    }
  }
  return routed;
}

}  // namespace ballast
