#pragma once

#include <string>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize.h>

#include "scheme/mlx/arrange.h"

namespace ballast {

// What is quantized, and how.
struct QuantizeInput {
  const Model& source;         // as given
  MlxArrangement arrangement;  // of it, in the MLX format
  QuantizeOptions options;     // also leaves unquantized what mlx-lm cannot hold quantized

  const Model& model() const { return arrangement.model_or(source); }
  // What was merged and arranged, for the user.
  std::vector<std::string> notes() const;
};

// Refuses settings that are invalid, and models whose tensors are not the values of weights.
Result<QuantizeInput> make_input(const Model& source, const QuantizeOptions& options);

}  // namespace ballast
