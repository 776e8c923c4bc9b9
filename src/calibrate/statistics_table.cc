#include "calibrate/statistics_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::size_t kMostTimesteps = 100'000;

Result<void> check_timesteps(std::vector<double> timesteps) {
  if (timesteps.empty() || timesteps.size() > kMostTimesteps) {
    return fail(Errc::kCorrupt, "has {} numbers, it must have from 1 to {}", timesteps.size(), kMostTimesteps);
  }
  std::ranges::sort(timesteps);
  const auto twice = std::ranges::adjacent_find(timesteps);
  if (twice != timesteps.end()) return fail(Errc::kCorrupt, "{} is given twice", *twice);
  return {};
}

Result<std::vector<double>> parse_timesteps(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, text));
  simdjson::dom::array list;
  if (root.get(list) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "{} is not a list of numbers", describe(root));
  std::vector<double> timesteps;
  for (const simdjson::dom::element entry : list) {
    double number = 0;
    if (entry.get(number) != simdjson::SUCCESS || !std::isfinite(number)) {
      return fail(Errc::kCorrupt, "entry {} is {}, not a number", timesteps.size(), describe(entry));
    }
    timesteps.push_back(number);
  }
  TRY(check_timesteps(timesteps));
  return timesteps;
}

constexpr std::string_view kRecorder = "ballast.calibration.Recorder";

Result<void> check_format(const Metadata& metadata) {
  const auto format = metadata.find("format");
  if (format == metadata.end()) {
    return fail(Errc::kUnsupported, "not activation statistics: the metadata has no format, expected '{}'; record them with {}",
                kStatisticsFormat, kRecorder);
  }
  if (format->second != kStatisticsFormat) {
    return fail(Errc::kUnsupported, "not activation statistics: the metadata has format {}, expected '{}'; record them with {}",
                quote(format->second), kStatisticsFormat, kRecorder);
  }
  return {};
}

std::unexpected<Error> error_in(const TensorInfo& tensor, std::string_view message) {
  return fail(Errc::kCorrupt, "tensor {}: {}", quote(tensor.name), message);
}

std::optional<Statistic> parse_statistic(std::string_view text) {
  const auto* const found = std::ranges::find(kStatisticNames, text);
  if (found == kStatisticNames.end()) return std::nullopt;
  return static_cast<Statistic>(found - kStatisticNames.begin());
}

Result<void> add(const TensorInfo& tensor, StatisticsTable& table) {
  const std::size_t dot = tensor.name.rfind('.');
  const auto statistic = dot == std::string_view::npos || dot == 0 ? std::nullopt : parse_statistic(tensor.name.substr(dot + 1));
  if (!statistic) return error_in(tensor, fmt::format("the name must be <weight>.{}", fmt::join(kStatisticNames, " or .")));
  if (tensor.dtype != DType::kF32)
    return error_in(tensor, fmt::format("dtype is {}; statistics must be F32", name(tensor.dtype)));
  table.weights[std::string(tensor.name.substr(0, dot))][*statistic] = &tensor;
  return {};
}

std::unexpected<Error> missing(std::string_view weight, const TensorInfo& tensor, Statistic statistic) {
  return error_in(tensor, fmt::format("{} is missing", quote(fmt::format("{}.{}", weight, name(statistic)))));
}

Result<void> check_complete(std::string_view weight, const WeightStatistics& found, std::size_t timesteps) {
  const TensorInfo& any = **std::ranges::find_if(found.tensors, [](const TensorInfo* tensor) { return tensor != nullptr; });
  if (timesteps != 0 && found[Statistic::kMean] == nullptr) return missing(weight, any, Statistic::kMean);
  if (found[Statistic::kSquareMean] == nullptr) return missing(weight, any, Statistic::kSquareMean);
  const TensorInfo* const low = found[Statistic::kMin];
  const TensorInfo* const high = found[Statistic::kMax];
  if (low != nullptr && high == nullptr) return missing(weight, *low, Statistic::kMax);
  if (high != nullptr && low == nullptr) return missing(weight, *high, Statistic::kMin);
  return {};
}

// The means, or the mean squares, say how many columns there are.
Result<std::uint64_t> columns_of(const TensorInfo& means, std::size_t timesteps) {
  const Shape shape = means.shape;
  if (timesteps == 0 && shape.size() != 1) {
    return error_in(means,
                    fmt::format("shape is {}, expected [columns], because the metadata has no timesteps", to_string(shape)));
  }
  if (timesteps != 0 && (shape.size() != 2 || shape.front() != timesteps)) {
    return error_in(means, fmt::format("shape is {}, expected [{}, columns], because the metadata has {} timesteps",
                                       to_string(shape), timesteps, timesteps));
  }
  if (shape.back() == 0) return error_in(means, fmt::format("shape {} has no columns", to_string(shape)));
  return shape.back();
}

std::vector<std::uint64_t> expected_shape(Statistic statistic, std::uint64_t columns, std::size_t timesteps) {
  if (statistic == Statistic::kHessian) return {columns, columns};
  if (!is_per_column(statistic)) return {std::max<std::size_t>(timesteps, 1)};
  return timesteps == 0 ? std::vector{columns} : std::vector{timesteps, columns};
}

Result<void> check_shapes(WeightStatistics& found, std::size_t timesteps) {
  const TensorInfo* const means = found[Statistic::kMean];
  const auto columns = TRY(columns_of(means != nullptr ? *means : *found[Statistic::kSquareMean], timesteps));
  found.columns = columns;
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    const TensorInfo* const tensor = found.tensors[i];
    if (tensor == nullptr) continue;
    const auto statistic = static_cast<Statistic>(i);
    const bool is_number = !is_per_column(statistic) && statistic != Statistic::kHessian;
    if (timesteps == 0 && is_number && tensor->shape.empty()) continue;
    const auto expected = expected_shape(statistic, columns, timesteps);
    if (std::ranges::equal(tensor->shape, expected)) continue;
    return error_in(*tensor, fmt::format("shape {}, expected {}", to_string(tensor->shape), to_string(expected)));
  }
  return {};
}

Result<StatisticsTable> read_table(const Model& file) {
  TRY(check_format(file.metadata()));
  StatisticsTable table;
  if (const auto text = file.metadata().find("timesteps"); text != file.metadata().end()) {
    auto timesteps = parse_timesteps(text->second);
    if (!timesteps) return fail_at("metadata 'timesteps'", timesteps.error());
    table.timesteps = std::move(*timesteps);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    TRY(add(tensor, table));
  }
  if (table.weights.empty()) return fail(Errc::kCorrupt, "contains no statistics");
  for (auto& [weight, found] : table.weights) {
    TRY(check_complete(weight, found, table.timesteps.size()));
    TRY(check_shapes(found, table.timesteps.size()));
  }
  return table;
}

}  // namespace

Result<StatisticsTable> read_statistics_table(const Model& file) {
  auto table = read_table(file);
  if (!table) return fail_at(escape(file.path()), table.error());
  return table;
}

}  // namespace ballast
