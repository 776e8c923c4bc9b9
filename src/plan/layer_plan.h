#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize_config.h>

#include "scheme/scheme.h"

namespace ballast {

// What becomes of one tensor.
struct LayerPlan {
  unsigned bits = 0;  // 0: left unquantized
  unsigned group_size = 0;
  unsigned least_bits = 2;  // that it may be given
  bool is_fixed = false;    // the user named its bits
  std::uint64_t rows = 0;   // of the matrix that it is quantized as
  std::uint64_t columns = 0;
  std::vector<float> restore;  // RowFormat::restore: what its columns are multiplied by when they are read, or nothing

  bool is_quantized() const { return bits != 0; }
};

// One LayerPlan for each tensor of a model, in its order. Immutable: what measurements change makes another plan.
class Plan {
 public:
  // Fails on patterns that are not regular expressions or match nothing, and on columns that the scheme cannot group.
  // Layers of diffusion models that deal with time, input and output are left unquantized, and those that modulate have 8 bits
  // at least, unless the config names their bits.
  static Result<Plan> make(const Model& model, const QuantizeConfig& config);

  std::span<const LayerPlan> layers() const { return layers_; }
  std::size_t size() const { return layers_.size(); }
  const LayerPlan& operator[](std::size_t tensor) const { return layers_[tensor]; }

  // With these bits, or column scales, one entry for each tensor.
  Plan with_bits(std::span<const unsigned> bits) const;
  Plan with_column_scales(std::vector<std::vector<float>> scales) const;

 private:
  explicit Plan(std::vector<LayerPlan> layers) : layers_(std::move(layers)) {}

  std::vector<LayerPlan> layers_;
};

// Whether a model makes images or sound, or its layers are told a time.
bool is_diffusion_model(const Model& model, Modality modality);

const WritableScheme& scheme_of(QuantizeFormat format);

}  // namespace ballast
