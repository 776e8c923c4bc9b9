#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include <ballast/quantize.h>

namespace ballast::cli {

// What quantize and validate tell of layers, as JSON: sizes, figures of all, and `layers`.
nlohmann::ordered_json report_json(const QuantizeReport& report);

// The worst layers first; all of them if asked for.
void print_layers(const QuantizeReport& report, double min_accuracy, bool all);

// "4.5 bits per weight, 3.54x smaller (1.19 GB to 337 MB)" and the figures of all layers.
void print_totals(const QuantizeReport& report);

// How many layers there are statistics of.
void print_calibration(const CalibrationReport& calibration);

}  // namespace ballast::cli
