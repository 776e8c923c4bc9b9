#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize_config.h>

namespace ballast {

// What becomes of one tensor.
struct LayerPlan {
  unsigned bits = 0;  // 0: kept as it is
  unsigned group_size = 0;
  unsigned least_bits = 2;    // that it may be given
  bool is_fixed = false;      // its bits are as the user said
  std::uint64_t rows = 0;     // of the matrix that is quantized: the first dimension by the product of the others in Parquet, all
  std::uint64_t columns = 0;  // but the last by the last in MLX
};

// One plan for each tensor of the model, in its order. Fails on patterns that are no regular expressions or match nothing, and
// in MLX on columns that the groups do not divide.
// Layers of diffusion models that deal with time, input and output are kept, and those that modulate have 8 bits at least, unless
// the config names their bits.
Result<std::vector<LayerPlan>> plan_layers(const Model& model, const QuantizeConfig& config);

// Whether a model makes images or sound, or its layers are told a time.
bool is_diffusion_model(const Model& model, Modality modality);

}  // namespace ballast
