#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ballast/model.h>

#include "plan/layer_plan.h"

namespace ballast {

// The weights that vLLM and SGLang join into one, by index, in order: queries, keys and values; gate and up projections; and the
// experts of a layer.
std::vector<std::vector<std::size_t>> find_fused(const Model& model);

// Of these, those that also share a scale or divisor of the whole tensor: experts do so in pairs of gate and up projection.
std::vector<std::vector<std::size_t>> find_sharing(const Model& model);

// Refuses tensors of which some are quantized and some are not, or have different bits by the user's choice.
Result<void> check_fused(const Model& model, std::span<const LayerPlan> plans, std::span<const std::size_t> tensors);

}  // namespace ballast
