#pragma once

namespace ballast {

// How near quantized weights are to those they stand for.
struct Quality {
  double cosine_similarity = 1;
  double relative_rmse = 0;  // sqrt(sum of e² / sum of w²)
  double sqnr_db = 0;        // 10 log10(sum of w² / sum of e²), infinite without an error
  double max_error = 0;
};

}  // namespace ballast
