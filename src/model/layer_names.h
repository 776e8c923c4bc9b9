#pragma once

#include <span>
#include <string_view>

namespace ballast {

// Whether `text` contains one of `parts`.
bool has_any(std::string_view text, std::span<const std::string_view> parts);

// model.layers.0.mlp.up_proj for model.layers.0.mlp.up_proj.weight
std::string_view layer_of(std::string_view tensor);

// Whether the tensor must keep its dtype when a model is converted: rotary frequencies, corrections of routers, and scales of
// quantized weights, inputs and caches. Readers expect F32 there, and fewer digits change the model.
bool keeps_dtype(std::string_view tensor);

// Whether the tensor belongs to the experts of a mixture-of-experts layer.
bool is_of_experts(std::string_view tensor);

}  // namespace ballast
