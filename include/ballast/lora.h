#pragma once

#include <span>
#include <string>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/open_options.h>

namespace ballast {

// A low-rank adapter (LoRA) to merge into a model. docs/cookbook.md lists the layouts that are read.
struct Lora {
  std::string path;  // a SafeTensors file or a directory, or a URI of one
  double scale = 1;  // of all its changes
};

// Opens a model whose tensors are its logical weights with the adapters merged: W + scale · alpha/rank · B·A, computed in F32
// when a tensor is read and rounded once to the dtype of the weight. Quantized weights are decoded first. The values do not
// depend on the processor. Every matrix of an adapter must have its place in the model; what cannot be merged is kUnsupported. Of
// a component of a pipeline, only the matrices for this component are merged.
Result<Model> open_merged(const std::string& model, std::span<const Lora> loras, const OpenOptions& options = {});

}  // namespace ballast
