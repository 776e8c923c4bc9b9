#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ballast/lora.h>
#include <ballast/model.h>

#include "jobs/lora/names.h"

namespace ballast {

// Two matrices whose product changes a weight. Their shapes fit each other.
struct LoraPair {
  LoraName name;
  const TensorInfo* down = nullptr;  // [rank, …]
  const TensorInfo* up = nullptr;    // [out, rank]
  double scale = 1;

  std::uint64_t rank() const { return down->shape[0]; }
  bool is_embedding() const { return name.part == LoraPart::kEmbeddingDown; }
};

// A tensor that replaces one of the model.
struct LoraWhole {
  LoraName name;
  const TensorInfo* tensor = nullptr;
};

// An adapter that can be merged, if the model has its modules. Tensors point into `model`.
struct LoraAdapter {
  Model model;
  std::vector<LoraPair> pairs;
  std::vector<LoraWhole> wholes;
  bool fan_in_fan_out = false;  // changes of layers that store [in, out] are transposed
  bool is_peft = false;
  std::vector<ModelFile> files;  // with the config
  std::string identity;          // changes when a file or the scale changes

  std::vector<std::string> roles() const;  // of pairs and wholes, sorted
};

Result<std::shared_ptr<const LoraAdapter>> open_lora(const Lora& lora, const OpenOptions& options);

}  // namespace ballast
