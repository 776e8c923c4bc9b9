#include "model/layer_names.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace ballast {

bool has_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.contains(part); });
}

std::string_view layer_of(std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  return tensor.ends_with(kSuffix) ? tensor.substr(0, tensor.size() - kSuffix.size()) : tensor;
}

bool keeps_dtype(std::string_view tensor) {
  constexpr std::array<std::string_view, 15> kLast{"inv_freq",         "e_score_correction_bias",
                                                   "expert_bias",      "input_scale",
                                                   "output_scale",     "k_scale",
                                                   "v_scale",          "q_scale",
                                                   "weight_scale",     "weight_scale_inv",
                                                   "weight_scale_2",   "pre_quant_scale",
                                                   "activation_scale", "qscale_weight",
                                                   "qscale_act"};
  return std::ranges::find(kLast, tensor.substr(tensor.rfind('.') + 1)) != kLast.end();
}

bool is_of_experts(std::string_view tensor) {
  constexpr std::array<std::string_view, 2> kParts{"expert", "switch_mlp"};
  return has_any(lowercase(tensor), kParts);
}

}  // namespace ballast
