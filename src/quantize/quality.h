#pragma once

#include <cstdint>

#include <ballast/quality.h>

namespace ballast {

// What the quality of quantized weights w + e is computed from.
struct QualitySums {
  std::uint64_t count = 0;
  double weights = 0;  // sum of w²
  double cross = 0;    // sum of w·e
  double error = 0;    // sum of e²
  double max_error = 0;
  double weighted = 0;        // sum of c·w², and
  double weighted_error = 0;  // of c·e², where statistics tell how important each column is

  void add(const QualitySums& other);
};

Quality quality_of(const QualitySums& sums);

}  // namespace ballast
