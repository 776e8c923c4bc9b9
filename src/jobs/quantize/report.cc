#include "jobs/quantize/report.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ballast {

void summarize_layers(QuantizeReport& report, double min_accuracy) {
  double parameters = 0;
  double cosines = 0;
  double errors = 0;
  double stored = 0;
  report.quality = {.sqnr_db = std::numeric_limits<double>::infinity()};
  report.passed = true;
  for (const LayerReport& layer : report.layers) {
    const auto weight = static_cast<double>(layer.parameters);
    parameters += weight;
    stored += static_cast<double>(layer.bytes);
    cosines += weight * layer.quality.cosine_similarity;
    errors += weight * layer.quality.relative_rmse;
    report.quality.max_error = std::max(report.quality.max_error, layer.quality.max_error);
    report.passed = report.passed && layer.quality.cosine_similarity >= min_accuracy;
  }
  if (parameters == 0) return;
  report.quality.cosine_similarity = cosines / parameters;
  report.quality.relative_rmse = errors / parameters;
  if (errors > 0) report.quality.sqnr_db = -20 * std::log10(report.quality.relative_rmse);
  report.bits_per_weight = stored * 8 / parameters;
}

}  // namespace ballast
