#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize_config.h>

#include "scheme/scheme.h"

namespace ballast {

// How one tensor is quantized.
struct LayerPlan {
  unsigned bits = 0;  // 0: left unquantized
  unsigned group_size = 0;
  QuantizeType type = QuantizeType::kInt;
  Strategy strategy = Strategy::kGroup;
  bool is_asymmetric = false;
  float whole_scale = 0;    // RowFormat::whole_scale, once it is measured
  unsigned least_bits = 2;  // never fewer
  bool is_fixed = false;    // the user set its bits
  std::uint64_t rows = 0;   // of the matrix view of the tensor
  std::uint64_t columns = 0;
  std::vector<float> restore;  // RowFormat::restore, or empty

  bool is_quantized() const { return bits != 0; }
};

// One LayerPlan for each tensor of a model, in order. Immutable: measurements give another plan.
class Plan {
 public:
  // Fails on patterns that are not regular expressions or match nothing, and on columns that the scheme cannot group. In
  // diffusion models, the time embedding and the first and last layers are left unquantized, and modulation layers have at least
  // 8 bits, unless the config sets their bits.
  static Result<Plan> make(const Model& model, const QuantizeConfig& config);

  std::span<const LayerPlan> layers() const { return layers_; }
  std::size_t size() const { return layers_.size(); }
  const LayerPlan& operator[](std::size_t tensor) const { return layers_[tensor]; }

  // Tensors that loaders join into one and that are quantized, see find_fused().
  std::span<const std::vector<std::size_t>> fused() const { return fused_; }

  // With these bits, column scales or scales of whole tensors, one entry for each tensor. Joined tensors get the most bits of
  // them.
  Plan with_bits(std::span<const unsigned> bits) const;
  Plan with_whole_scales(std::span<const float> scales) const;
  Plan with_column_scales(std::vector<std::vector<float>> scales) const;

 private:
  explicit Plan(std::vector<LayerPlan> layers) : layers_(std::move(layers)) {}

  std::vector<LayerPlan> layers_;
  std::vector<std::vector<std::size_t>> fused_;
};

// Whether a model generates images or audio, or has a time embedding.
bool is_diffusion_model(const Model& model, Modality modality);

const WritableScheme& scheme_of(QuantizeFormat format);

// The layout of a tensor that is quantized, without what calibration adds.
WeightLayout layout_of(const WritableScheme& scheme, const TensorInfo& tensor, const LayerPlan& plan);

}  // namespace ballast
