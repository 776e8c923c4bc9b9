#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ballast/quantize.h>

namespace ballast::cli {

// The report of quantize and validate as JSON: sizes, total metrics, and `layers`.
nlohmann::ordered_json report_json(const QuantizeReport& report);

// Null if there is none.
nlohmann::ordered_json size_fit_json(const std::optional<SizeFitReport>& fit);

// A table of the worst layers, or of all, worst first.
void print_layers(const QuantizeReport& report, double min_accuracy, bool all);

// "4.50 bits per weight, 4.51 over all tensors, 3.54x smaller: 1.19 GB to 337 MB" and the total metrics.
void print_totals(const QuantizeReport& report);

// The number of layers with statistics.
void print_calibration(const CalibrationReport& calibration);

}  // namespace ballast::cli
