#pragma once

#include <optional>

namespace ballast {

// How close the dequantized weights are to the original weights w, with error e = dequantized - w.
struct Quality {
  double cosine_similarity = 1;
  double relative_rmse = 0;  // sqrt(Σ e² / Σ w²)
  double sqnr_db = 0;        // 10 log10(Σ w² / Σ e²); infinite if there is no error
  double max_error = 0;      // largest |e|
  // sqrt(Σ c·e² / Σ c·w²) with c = E[x²] of each input channel: an estimate of the relative error of the layer's outputs. Needs
  // calibration statistics.
  std::optional<double> output_error;
};

}  // namespace ballast
