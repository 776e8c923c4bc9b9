#include "quantize/quality.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ballast {

void QualitySums::add(const QualitySums& other) {
  count += other.count;
  weights += other.weights;
  cross += other.cross;
  error += other.error;
  max_error = std::max(max_error, other.max_error);
  weighted += other.weighted;
  weighted_error += other.weighted_error;
}

Quality quality_of(const QualitySums& sums) {
  Quality quality{.max_error = sums.max_error};
  const double result = sums.weights + 2 * sums.cross + sums.error;  // sum of (w + e)²
  if (sums.weights > 0 && result > 0) {
    quality.cosine_similarity = std::clamp((sums.weights + sums.cross) / std::sqrt(sums.weights * result), -1.0, 1.0);
  } else {
    quality.cosine_similarity = sums.error > 0 ? 0 : 1;  // the weights are all zero
  }
  quality.relative_rmse = sums.error == 0 ? 0 : std::sqrt(sums.error / sums.weights);
  quality.sqnr_db = sums.error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(sums.weights / sums.error);
  if (sums.weighted > 0) quality.output_error = std::sqrt(sums.weighted_error / sums.weighted);
  return quality;
}

}  // namespace ballast
