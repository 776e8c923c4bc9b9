#include "calibrate/layer_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "quantize/importance.h"

namespace ballast {
namespace {

class LayerReader {
 public:
  LayerReader(const Model& file, const WeightStatistics& found, const UsedTimesteps& used)
      : file_(file), found_(found), used_(used) {}

  Result<LayerStatistics> read() {
    LayerStatistics layer{.columns = found_.columns};
    std::vector<float> counts;
    std::vector<float> energies;
    TRY(read_all(layer, counts, energies));
    layer.counts.assign(counts.begin(), counts.end());
    TRY(add_up_inputs(layer.inputs));
    if (counts.empty()) layer.counts.assign(used_.rows.size(), 1);
    layer.weights = timestep_weights(layer.counts, energies);
    layer.importance = column_importance(layer);
    return layer;
  }

 private:
  Result<void> read_all(LayerStatistics& layer, std::vector<float>& counts, std::vector<float>& energies) const {
    TRY(read_values(Statistic::kMean, layer.means));
    TRY(read_values(Statistic::kSquareMean, layer.squares));
    TRY(check_squares(layer));
    TRY(read_values(Statistic::kMin, layer.lows));
    TRY(read_values(Statistic::kMax, layer.highs));
    TRY(check_range(layer));
    TRY(read_values(Statistic::kOutputSquareMean, energies));
    TRY(check_not_negative(Statistic::kOutputSquareMean, energies));
    TRY(read_values(Statistic::kCount, counts));
    return check_counts(counts);
  }

  // The values of the used timesteps; none if not recorded.
  Result<void> read_values(Statistic statistic, std::vector<float>& values) const {
    const TensorInfo* const tensor = found_[statistic];
    if (tensor == nullptr) return {};
    const std::uint64_t width = is_per_column(statistic) ? found_.columns : 1;
    values.resize(used_.rows.size() * width);
    for (std::size_t i = 0; i < used_.rows.size(); ++i) {
      const auto row = std::span(values).subspan(i * width, width);
      TRY(file_.read_into(tensor->name, used_.rows[i] * row.size_bytes(), std::as_writable_bytes(row)));
    }
    return check_each(statistic, values, [](float value) { return std::isfinite(value); }, "");
  }

  // Over all timesteps, used or not.
  Result<void> add_up_inputs(double& inputs) const {
    const TensorInfo* const tensor = found_[Statistic::kCount];
    if (tensor == nullptr) return {};
    std::vector<float> counts(tensor->elements());
    TRY(file_.read_into(tensor->name, 0, std::as_writable_bytes(std::span(counts))));
    for (const float count : counts) inputs += std::isfinite(count) && count > 0 ? static_cast<double>(count) : 0.0;
    return {};
  }

  template <class Allowed>
  Result<void> check_each(Statistic statistic, std::span<const float> values, Allowed allowed, std::string_view remark) const {
    const auto bad = std::ranges::find_if_not(values, allowed);
    if (bad == values.end()) return {};
    return error_at(statistic, static_cast<std::size_t>(bad - values.begin()), *bad, remark);
  }

  Result<void> check_not_negative(Statistic statistic, std::span<const float> values) const {
    return check_each(statistic, values, [](float value) { return value >= 0; }, ", expected at least 0");
  }

  // The square of a mean is at most the mean of the squares. Both may be rounded, and small ones to 0.
  Result<void> check_squares(const LayerStatistics& layer) const {
    constexpr double kRounding = 1.01;
    constexpr double kNothing = std::numeric_limits<float>::min();
    TRY(check_not_negative(Statistic::kSquareMean, layer.squares));
    for (std::size_t i = 0; i < layer.means.size(); ++i) {
      const auto mean = static_cast<double>(layer.means[i]);
      if (mean * mean <= kRounding * static_cast<double>(layer.squares[i]) + kNothing) continue;
      return error_at(Statistic::kSquareMean, i, layer.squares[i],
                      fmt::format(", below the square of the mean, {}", static_cast<float>(mean * mean)));
    }
    return {};
  }

  Result<void> check_range(const LayerStatistics& layer) const {
    for (std::size_t i = 0; i < layer.lows.size(); ++i) {
      if (layer.lows[i] <= layer.highs[i]) continue;
      return error_at(Statistic::kMin, i, layer.lows[i], fmt::format(", above x_max {}", layer.highs[i]));
    }
    return {};
  }

  Result<void> check_counts(std::span<const float> counts) const {
    TRY(check_not_negative(Statistic::kCount, counts));
    if (counts.empty() || std::ranges::any_of(counts, [](float count) { return count > 0; })) return {};
    return error(Statistic::kCount, used_.times.empty() ? "0" : fmt::format("0 at all of {} timesteps", counts.size()));
  }

  std::unexpected<Error> error_at(Statistic statistic, std::size_t position, float value, std::string_view remark) const {
    const std::uint64_t width = is_per_column(statistic) ? found_.columns : 1;
    std::string text = fmt::to_string(value);
    if (is_per_column(statistic)) text += fmt::format(" in column {}", position % width);
    if (!used_.times.empty()) text += fmt::format(" at timestep {}", used_.times[position / width]);
    return error(statistic, text.append(remark));
  }

  std::unexpected<Error> error(Statistic statistic, std::string_view message) const {
    return fail(Errc::kCorrupt, "{}: tensor {}: {}", escape(file_.path()), quote(found_[statistic]->name), message);
  }

  const Model& file_;
  const WeightStatistics& found_;
  const UsedTimesteps& used_;
};

}  // namespace

std::vector<double> timestep_weights(std::span<const double> counts, std::span<const float> energies) {
  std::vector<double> weights(counts.begin(), counts.end());
  double least = 0;
  for (std::size_t t = 0; t < energies.size(); ++t) {
    const auto energy = static_cast<double>(energies[t]);
    if (counts[t] > 0 && energy > 0 && (least == 0 || energy < least)) least = energy;
  }
  if (least > 0) {
    for (std::size_t t = 0; t < energies.size(); ++t) weights[t] /= std::max(static_cast<double>(energies[t]), least);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::vector<float> column_importance(const LayerStatistics& layer) {
  std::vector<double> sums(layer.columns);
  for (std::size_t t = 0; t < layer.timesteps(); ++t) {
    const float* const squares = layer.squares.data() + t * layer.columns;
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += layer.weights[t] * static_cast<double>(squares[j]);
  }
  const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(sums.size());
  std::vector<float> importance(sums.size(), 1.0F);
  if (mean == 0) return importance;
  std::ranges::transform(sums, importance.begin(), [&](double sum) { return static_cast<float>(sum / mean); });
  const float least = least_importance(importance);
  for (float& value : importance) value = std::max(value, least);
  return importance;
}

Result<LayerStatistics> read_layer_statistics(const Model& file, const WeightStatistics& found, const UsedTimesteps& used) {
  return LayerReader(file, found, used).read();
}

}  // namespace ballast
