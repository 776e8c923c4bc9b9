#include "quality_table.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ballast/text.h>

#include "display_width.h"
#include "format.h"
#include "table.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string decibels(double value) { return std::isfinite(value) ? fmt::format("{:.1f} dB", value) : "exact"; }

Json calibration_json(const std::optional<CalibrationReport>& calibration) {
  if (!calibration) return {};
  return {{"covered", calibration->covered},         {"uncovered", calibration->uncovered},
          {"timesteps", calibration->timesteps},     {"recorded_timesteps", calibration->recorded_timesteps},
          {"time_groups", calibration->time_groups}, {"boundaries", calibration->boundaries}};
}

std::string method_text(const LayerReport& layer) { return layer.method + (layer.equalized ? ", equalized" : ""); }

std::vector<Cell> cells_of(const LayerReport& layer, double min_accuracy) {
  const Quality& quality = layer.quality;
  const std::string bits =
      layer.bits == layer.planned_bits ? fmt::format("{}", layer.bits) : fmt::format("{}→{}", layer.planned_bits, layer.bits);
  return {
      label_text(layer.name),
      bits,
      fmt::format("{}", layer.group_size),
      {fmt::format("{:.5f}", quality.cosine_similarity), quality.cosine_similarity < min_accuracy ? Tone::kRed : Tone::kPlain},
      fmt::format("{:.5f}", quality.relative_rmse),
      decibels(quality.sqnr_db),
      fmt::format("{:.3g}", quality.max_error),
      human_bytes(layer.bytes)};
}

}  // namespace

Json size_fit_json(const std::optional<SizeFitReport>& fit) {
  if (!fit) return {};
  return {{"expected_bytes", fit->expected_bytes},
          {"expected_error", fit->expected_error},
          {"error", fit->error ? Json(*fit->error) : Json()},
          {"error_of", fit->of_outputs ? "outputs" : "weights"},
          {"uniform_bits", fit->uniform_bits},
          {"uniform_bytes", fit->uniform_bytes},
          {"uniform_error", fit->uniform_error}};
}

Json report_json(const QuantizeReport& report) {
  Json layers = Json::array();
  for (const LayerReport& layer : report.layers) {
    layers.push_back({{"name", layer.name},
                      {"dtype", name(layer.dtype)},
                      {"shape", layer.shape},
                      {"bits", layer.bits},
                      {"planned_bits", layer.planned_bits},
                      {"group_size", layer.group_size},
                      {"method", layer.method.empty() ? Json() : Json(layer.method)},
                      {"equalized", layer.equalized},
                      {"parameters", layer.parameters},
                      {"bytes", layer.bytes},
                      {"cosine_similarity", layer.quality.cosine_similarity},
                      {"relative_rmse", layer.quality.relative_rmse},
                      {"sqnr_db", number(layer.quality.sqnr_db)},
                      {"max_error", layer.quality.max_error},
                      {"output_error", layer.quality.output_error ? Json(*layer.quality.output_error) : Json()},
                      {"expected_error", layer.expected_error ? Json(*layer.expected_error) : Json()}});
  }
  return {{"compression_ratio", report.compression_ratio()},
          {"bits_per_weight", report.bits_per_weight},
          {"bits_per_weight_total", report.bits_per_weight_total},
          {"cosine_similarity", report.quality.cosine_similarity},
          {"relative_rmse", report.quality.relative_rmse},
          {"sqnr_db", number(report.quality.sqnr_db)},
          {"max_error", report.quality.max_error},
          {"model_size_mb", static_cast<double>(report.bytes) / 1e6},
          {"source_bytes", report.source_bytes},
          {"bytes", report.bytes},
          {"modality", name(report.modality)},
          {"passed", report.passed},
          {"quantized_tensors", report.layers.size()},
          {"kept_tensors", report.unquantized},
          {"left_out", report.left_out},
          {"notes", report.notes},
          {"calibration", calibration_json(report.calibration)},
          {"size_fit", size_fit_json(report.size_fit)},
          {"files", report.files},
          {"layers", std::move(layers)}};
}

void print_layers(const QuantizeReport& report, double min_accuracy, bool all) {
  constexpr std::size_t kFew = 10;
  if (report.layers.empty()) return;
  std::vector<const LayerReport*> layers;
  for (const LayerReport& layer : report.layers) layers.push_back(&layer);
  std::ranges::sort(layers, [](const LayerReport* a, const LayerReport* b) {
    const double left = a->quality.relative_rmse;
    const double right = b->quality.relative_rmse;
    return left != right ? left > right : a->name < b->name;
  });
  const std::size_t shown = all ? layers.size() : std::min(layers.size(), kFew);
  const bool calibrated =
      std::ranges::any_of(layers, [](const LayerReport* layer) { return layer->quality.output_error.has_value(); });
  // SQNR is the relative RMSE in other units, and the group is the same for all layers.
  std::vector<Column> columns{{.title = "worst first", .least = 32},
                              {.title = "bits", .right = true},
                              {.title = "group", .right = true, .drop = 3},
                              {.title = "cosine", .right = true},
                              {.title = "rel RMSE", .right = true},
                              {.title = "SQNR", .right = true, .drop = 2},
                              {.title = "max error", .right = true, .drop = 1},
                              {.title = "size", .right = true, .drop = 4}};
  if (calibrated) {
    columns.push_back({.title = "output", .right = true});
    columns.push_back({.title = "method", .least = 15});
  }
  Table table(std::move(columns));
  for (const LayerReport* const layer : std::span(layers).first(shown)) {
    std::vector<Cell> cells = cells_of(*layer, min_accuracy);
    if (calibrated) {
      const auto& error = layer->quality.output_error;
      cells.emplace_back(error ? fmt::format("{:.5f}", *error) : "");
      cells.emplace_back(method_text(*layer));
    }
    table.add(std::move(cells));
  }
  table.print();
  if (shown < layers.size())
    print("{}\n", tinted(Tone::kDim, fmt::format("… and {} more; --layers lists all", layers.size() - shown)));
}

void print_calibration(const CalibrationReport& calibration) {
  print("statistics for {} of {}", grouped(calibration.covered),
        counted(calibration.covered + calibration.uncovered.size(), "layer"));
  if (calibration.timesteps > 0) {
    const bool all = calibration.timesteps == calibration.recorded_timesteps;
    print(", {}{} in {}", all ? "" : grouped(calibration.timesteps) + " of ", counted(calibration.recorded_timesteps, "timestep"),
          counted(calibration.time_groups, "group"));
  }
  print("\n");
  if (!calibration.uncovered.empty()) {
    constexpr std::string_view kStart = "no statistics for ";
    const std::size_t others = calibration.uncovered.size() - 1;
    const std::string more = others == 0 ? "" : fmt::format(" and {} more", grouped(others));
    const std::string label =
        shortened(label_text(calibration.uncovered.front()), output_columns() - kStart.size() - more.size());
    print("{}\n", tinted(Tone::kDim, fmt::format("{}{}{}", kStart, label, more)));
  }
}

void print_totals(const QuantizeReport& report) {
  const double ratio = report.compression_ratio();
  if (!report.layers.empty()) {
    print("{:.2f} bits per weight, {:.2f} over all tensors, ", report.bits_per_weight, report.bits_per_weight_total);
  }
  print("{} {}: {} to {}\n", tinted(Tone::kBold, fmt::format("{:.2f}x", std::max(ratio, 1 / ratio))),
        ratio < 1 ? "larger" : "smaller", human_bytes(report.source_bytes), human_bytes(report.bytes));
  if (report.layers.empty()) return;
  print("cosine {:.5f}, relative RMSE {:.5f}, SQNR {}, max error {:.3g}\n", report.quality.cosine_similarity,
        report.quality.relative_rmse, decibels(report.quality.sqnr_db), report.quality.max_error);
}

}  // namespace ballast::cli
