#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/lora.h>
#include <ballast/pipeline.h>
#include <ballast/weights.h>

namespace ballast {

// The dtypes of the values of a merged model.
struct MergedDTypes {
  std::optional<DType> decoded;                 // of quantized weights that are not merged; empty: decoded_dtype()
  std::function<DType(const Weight&)> changed;  // of those that are merged; empty: the dtype of the weight
};

// A model of the weights with the adapters merged; see open_merged().
Result<Model> merge_loras(Weights weights, std::span<const Lora> loras, const OpenOptions& options,
                          const MergedDTypes& dtypes = {});

// Refuses a model that was opened without the adapters that its options name.
Result<void> check_merged(const Model& model, std::span<const Lora> loras);

// The adapters that have something for a component of a pipeline.
Result<std::vector<Lora>> loras_for(const Component& component, std::span<const Lora> loras, const OpenOptions& options);

// Refuses adapters with parts that are for none of the components, or that do not say for which they are.
Result<void> check_roles(std::span<const Component> components, std::span<const Lora> loras, const OpenOptions& options);

}  // namespace ballast
