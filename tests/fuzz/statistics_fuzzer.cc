// Takes its input for a file of statistics. What is accepted must be read in full or be refused for its values, and what comes
// of it must make sense: weights that add up, finite numbers, groups of timesteps in order.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "calibrate/statistics.h"
#include "calibrate/time_groups.h"
#include "check.h"
#include "safetensors_mutator.h"

namespace ballast {
namespace {

constexpr unsigned kMostTimesteps = 6;
constexpr unsigned kMostGroups = 4;

bool are_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void check_layer(const LayerStatistics& layer, std::size_t timesteps) {
  check(layer.timesteps() == timesteps && layer.counts.size() == timesteps);
  check(layer.means.size() == timesteps * layer.columns && layer.squares.size() == layer.means.size());
  check(layer.lows.size() == layer.highs.size() && (layer.lows.empty() || layer.lows.size() == timesteps));
  check(std::abs(std::accumulate(layer.weights.begin(), layer.weights.end(), 0.0) - 1) < 1e-9);
  check(std::ranges::all_of(layer.weights, [](double weight) { return weight >= 0; }));
  check(layer.importance.size() == layer.columns && are_finite(layer.importance));
  check(std::ranges::all_of(layer.importance, [](float importance) { return importance > 0; }));
}

void check_groups(const LayerStatistics& layer, std::span<const std::size_t> starts) {
  check(!starts.empty() && starts.size() <= kMostGroups && starts.front() == 0 && starts.back() < layer.timesteps());
  check(std::ranges::adjacent_find(starts, std::greater_equal()) == starts.end());
  const GroupStatistics groups = group_means(layer, starts);
  check(groups.means.size() == starts.size() * layer.columns && groups.variances.size() == groups.means.size());
  check(are_finite(groups.means) && are_finite(groups.variances) && are_finite(groups.lows) && are_finite(groups.highs));
}

void check_hessian(const Statistics& statistics, const std::string& weight) {
  std::vector<float> row(statistics.columns(weight));
  for (std::uint64_t i = 0; i < row.size(); ++i) {
    if (!statistics.read_hessian(weight, i, row)) return;
    check(are_finite(row) && row[i] >= 0);
  }
}

void check_statistics(const Statistics& statistics) {
  check(std::ranges::is_sorted(statistics.timesteps()) && statistics.timesteps().size() <= kMostTimesteps);
  check(!statistics.weights().empty());
  TimeGroups groups;
  std::vector<LayerStatistics> layers;
  for (const std::string& weight : statistics.weights()) {
    if (statistics.has_hessian(weight)) check_hessian(statistics, weight);
    auto layer = statistics.read(weight);
    if (!layer) {
      check(layer.error().code == Errc::kCorrupt && !layer.error().message.empty());
      continue;
    }
    check(layer->columns == statistics.columns(weight));
    check_layer(*layer, std::max<std::size_t>(statistics.timesteps().size(), 1));
    groups.add(*layer);
    layers.push_back(std::move(*layer));
  }
  const auto starts = groups.cut(kMostGroups);
  for (const LayerStatistics& layer : layers) check_groups(layer, starts);
}

}  // namespace
}  // namespace ballast

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  return ballast::mutate_safetensors(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = ballast::Model::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) return 0;
  const auto statistics = ballast::Statistics::from_file(std::move(*file), ballast::kMostTimesteps);
  if (statistics) {
    ballast::check_statistics(*statistics);
  } else {
    ballast::check(!statistics.error().message.empty());
  }
  return 0;
}
