#pragma once

#include <optional>

namespace ballast {

// How near quantized weights are to those they stand for.
struct Quality {
  double cosine_similarity = 1;
  double relative_rmse = 0;  // sqrt(sum of e² / sum of w²)
  double sqnr_db = 0;        // 10 log10(sum of w² / sum of e²), infinite without an error
  double max_error = 0;
  // sqrt(sum of c·e² / sum of c·w²) with c = E[x²] of each input channel: how far the layer's outputs are off, as far as
  // statistics of its inputs tell.
  std::optional<double> output_error;
};

}  // namespace ballast
