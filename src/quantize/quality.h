#pragma once

#include <cstdint>

namespace ballast {

// What the quality of quantized weights w + e is computed from.
struct QualitySums {
  std::uint64_t count = 0;
  double weights = 0;  // sum of w²
  double cross = 0;    // sum of w·e
  double error = 0;    // sum of e²
  double max_error = 0;

  void add(const QualitySums& other);
};

struct Quality {
  double cosine_similarity = 1;
  double relative_rmse = 0;  // sqrt(sum e² / sum w²)
  double sqnr_db = 0;        // 10 log10(sum w² / sum e²), infinite without an error
  double max_error = 0;
};

Quality quality_of(const QualitySums& sums);

}  // namespace ballast
