#include "jobs/quantize/report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file_names.h"
#include "base/text.h"
#include "jobs/companions.h"
#include "jobs/quantize/output_plan.h"
#include "model/state.h"

namespace ballast {
namespace {

// Names the first few layers below min_accuracy.
std::string describe_below(const std::vector<LayerReport>& layers, const QuantizeConfig& config) {
  constexpr std::size_t kFew = 3;
  std::vector<std::string> names;
  for (const LayerReport& layer : layers) {
    if (layer.quality.cosine_similarity < config.min_accuracy) names.push_back(quote(layer.name));
  }
  const std::size_t count = names.size();
  names.resize(std::min(count, kFew));
  const std::string reason = config.target_model_size            ? ", because target_model_size_mb leaves no more bits"
                             : config.type != QuantizeType::kInt ? fmt::format(", and type {} fixes the bits", name(config.type))
                                                                 : " even with 8 bits";
  return fmt::format("{} of {} layers are below min_accuracy {}{}: {}{}", count, layers.size(), config.min_accuracy, reason,
                     fmt::join(names, ", "), count > kFew ? ", ..." : "");
}

std::vector<std::string> warnings_of(const FinishedOutput& finished) {
  std::vector<std::string> warnings;
  const QuantizeConfig& config = finished.coder.config();
  const Calibration* const calibration = finished.coder.calibration();
  if (config.enable_time_aware.value_or(false) && calibration == nullptr) {
    warnings.push_back(fmt::format("enable_time_aware has no effect without activation statistics: 1 time group instead of {}",
                                   config.num_time_groups));
  }
  if (config.enable_spatial.value_or(false) && calibration == nullptr) {
    warnings.emplace_back("enable_spatial has no effect without activation statistics");
  }
  if (calibration != nullptr) std::ranges::copy(calibration->warnings(), std::back_inserter(warnings));
  if (calibration != nullptr && calibration->groups() > 1 && !finished.has_time_bias && !finished.has_skipped) {
    warnings.emplace_back("no time bias is significant; record more inputs per timestep, and their counts");
  }
  if (finished.coder.scheme().last_file() == kParquetMetadataFile &&
      std::ranges::find(finished.output.companions, kParquetMetadataFile, &Companion::name) != finished.output.companions.end()) {
    warnings.push_back(fmt::format("the model's {} is not copied; the output has its own", kParquetMetadataFile));
  }
  std::ranges::move(finished.coder.scheme().warnings(finished.output.weights), std::back_inserter(warnings));
  if (ModelAccess::is_dequantized(finished.coder.model())) {
    const auto& decoded = ModelAccess::decoded(finished.coder.model());
    warnings.push_back(fmt::format("{} weights were dequantized first", decoded->scheme));
    if (auto left_out = describe_dropped(decoded->dropped); !left_out.empty()) warnings.push_back(std::move(left_out));
  }
  return warnings;
}

std::string method_of(const LayerCoder& coder, std::size_t tensor) {
  const QuantizeMethod method = coder.config().method;
  const Calibration* const calibration = coder.calibration();
  if (!is_search(method) || calibration == nullptr || !calibration->covers(tensor)) return std::string(name(method));
  return calibration->has_feedback(tensor) ? "gptq" : "weighted search";
}

CalibrationReport describe_calibration(const FinishedOutput& finished) {
  const Calibration& calibration = *finished.coder.calibration();
  const Statistics& statistics = calibration.statistics();
  Coverage coverage = statistics.coverage(finished.coder.model(), finished.planned.layers());
  return {.covered = coverage.covered,
          .uncovered = std::move(coverage.uncovered),
          .timesteps = statistics.timesteps().size(),
          .recorded_timesteps = statistics.recorded_timesteps(),
          .time_groups = std::max<std::size_t>(calibration.groups(), 1),
          .boundaries = calibration.boundaries()};
}

std::optional<double> expected_error(const std::optional<SizeExpectation>& expected, std::size_t tensor) {
  if (!expected) return std::nullopt;
  const auto found = expected->tensors.find(tensor);
  return found == expected->tensors.end() ? std::nullopt : std::optional(found->second.error);
}

// As SizeFitReport::error. The tensors are in the order of the layers.
double mean_error(std::span<const LayerReport> layers, const SizeExpectation& expected) {
  double errors = 0;
  double weights = 0;
  auto layer = layers.begin();
  for (const auto& [index, tensor] : expected.tensors) {
    const Quality& quality = layer++->quality;
    const double error = quality.output_error.value_or(quality.relative_rmse);
    errors += error * error * tensor.weight;
    weights += tensor.weight;
  }
  return weights == 0 ? 0 : std::sqrt(errors / weights);
}

}  // namespace

QuantizeReport make_report(const FinishedOutput& finished) {
  const OutputPlan& output = finished.output;
  QuantizeReport report{.source_bytes = output.source_bytes, .warnings = warnings_of(finished)};
  Unquantized others;
  std::size_t block = 0;
  for (std::size_t i = 0; i < output.weights.size(); ++i) {
    QualitySums sums;
    for (; block < output.blocks.size() && output.blocks[block].tensor == i; ++block) sums.add(finished.sums[block]);
    const WeightLayout& weight = output.weights[i];
    if (!weight.is_quantized()) {
      ++report.unquantized;
      others.parameters += weight.elements();
      others.bytes += weight.rows * weight.columns;
      continue;
    }
    report.layers.push_back({.name = weight.name,
                             .dtype = weight.dtype,
                             .shape = weight.shape,
                             .bits = weight.bits,
                             .group_size = weight.group_size,
                             .parameters = weight.elements(),
                             .bytes = finished.coder.scheme().stored_bytes(weight),
                             .planned_bits = finished.planned[i].bits,
                             .method = method_of(finished.coder, i),
                             .equalized = !weight.restore.empty(),
                             .expected_error = expected_error(finished.expected, i),
                             .quality = quality_of(sums)});
  }
  if (report.layers.empty() && report.unquantized > 0) {
    report.warnings.emplace_back(
        "nothing was quantized: every tensor has fewer than two dimensions, is not floating point or is excluded by its name");
  }
  if (finished.coder.calibration() != nullptr) report.calibration = describe_calibration(finished);
  if (finished.expected) {
    report.size_fit = finished.expected->report;
    if (!finished.has_skipped) report.size_fit->error = mean_error(report.layers, *finished.expected);
  }
  if (!output.not_copied.empty()) report.notes.push_back(describe_not_copied(output.not_copied));
  report.not_copied = output.not_copied;
  const QuantizeConfig& config = finished.coder.config();
  summarize_layers(report, others, config.min_accuracy);
  if (!report.passed) report.warnings.push_back(describe_below(report.layers, config));
  for (const QuantizedWriter::File& file : finished.files) {
    report.files.push_back(file.path);
    report.bytes += file.bytes;
  }
  return report;
}

QuantizePlan describe_plan(const LayerCoder& coder, const OutputPlan& output, Modality modality,
                           const std::optional<SizeExpectation>& expected) {
  QuantizePlan plan{.layers = {}, .source_bytes = output.source_bytes, .modality = modality, .key = output.key};
  if (expected) plan.size_fit = expected->report;
  for (std::size_t i = 0; i < output.weights.size(); ++i) {
    const WeightLayout& weight = output.weights[i];
    plan.layers.push_back({.name = weight.name,
                           .dtype = weight.dtype,
                           .shape = weight.shape,
                           .bits = weight.bits,
                           .group_size = weight.group_size,
                           .method = weight.is_quantized() ? method_of(coder, i) : "",
                           .equalized = !weight.restore.empty(),
                           .parameters = weight.elements(),
                           .bytes = weight.is_quantized() ? coder.scheme().stored_bytes(weight) : weight.rows * weight.columns,
                           .expected_error = expected_error(expected, i)});
    plan.bytes += plan.layers.back().bytes;
  }
  return plan;
}

void summarize_layers(QuantizeReport& report, const Unquantized& others, double min_accuracy) {
  double parameters = 0;
  double cosines = 0;
  double errors = 0;
  double stored = 0;
  report.quality = {.sqnr_db = std::numeric_limits<double>::infinity()};
  report.passed = true;
  report.unquantized_parameters = others.parameters;
  report.unquantized_bytes = others.bytes;
  for (const LayerReport& layer : report.layers) {
    const auto weight = static_cast<double>(layer.parameters);
    parameters += weight;
    stored += static_cast<double>(layer.bytes);
    cosines += weight * layer.quality.cosine_similarity;
    errors += weight * layer.quality.relative_rmse;
    report.quality.max_error = std::max(report.quality.max_error, layer.quality.max_error);
    report.passed = report.passed && layer.quality.cosine_similarity >= min_accuracy;
  }
  const double all = parameters + static_cast<double>(others.parameters);
  if (all > 0) report.bits_per_weight_total = (stored + static_cast<double>(others.bytes)) * 8 / all;
  if (parameters == 0) return;
  report.quality.cosine_similarity = cosines / parameters;
  report.quality.relative_rmse = errors / parameters;
  if (errors > 0) report.quality.sqnr_db = -20 * std::log10(report.quality.relative_rmse);
  report.bits_per_weight = stored * 8 / parameters;
}

}  // namespace ballast
