#pragma once

#include <cstdint>
#include <span>

#include <ballast/quality.h>

namespace ballast {

// The sums from which the quality of quantized weights w + e is computed.
struct QualitySums {
  std::uint64_t count = 0;
  double weights = 0;  // sum of w²
  double cross = 0;    // sum of w·e
  double error = 0;    // sum of e²
  double max_error = 0;
  double weighted = 0;        // sum of c·w², and
  double weighted_error = 0;  // of c·e², with the importance c of each column

  void add(const QualitySums& other);
};

Quality quality_of(const QualitySums& sums);

}  // namespace ballast
