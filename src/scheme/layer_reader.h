#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <ballast/model.h>

#include "scheme/layer.h"
#include "scheme/reader.h"
#include "scheme/scheme.h"

namespace ballast {

// A scheme whose weights are layers: it finds them, and open() makes a reader of what it found.
class LayerScheme : public Scheme {
 public:
  // Empty if the model is not stored this way. Every size is checked; an error if the parts of a layer contradict each other, or
  // the config.
  virtual Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const = 0;

  // Also fails if two weights have one name, or if a tensor looks like part of a quantized weight, but belongs to no layer.
  Result<std::unique_ptr<WeightsReader>> open(Model& model, std::span<const Declared> declared) const final;
};

const LayerScheme& gptq_scheme();
const LayerScheme& awq_scheme();
const LayerScheme& bitsandbytes_scheme();
const LayerScheme& compressed_tensors_scheme();
const LayerScheme& modelopt_scheme();
const LayerScheme& comfyui_scheme();
const LayerScheme& fp8_scheme();
const LayerScheme& mxfp4_scheme();

// What the first scheme that recognizes the model finds; empty if it is not stored as layers.
Result<std::optional<Layers>> find_layers(const Model& model);

}  // namespace ballast
