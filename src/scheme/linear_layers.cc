#include "scheme/linear_layers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/text.h"
#include "model/layer_names.h"
#include "scheme/matrix.h"

namespace ballast {
namespace {

constexpr std::string_view kMatrixSuffix = ".weight";
constexpr std::string_view kOutput = "lm_head";

std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// Whether a part of the name is a number: model.layers.3.mlp.up_proj.
bool is_in_block(std::string_view module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (!part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; })) return true;
    begin = end + 1;
  }
  return false;
}

bool is_embedding(std::string_view module) {
  constexpr std::array<std::string_view, 3> kParts{"embed", "wte", "wpe"};
  return has_any(lowercase(last_part(module)), kParts) || last_part(module) == "shared";  // of T5
}

bool is_router(std::string_view module) {
  constexpr std::array<std::string_view, 4> kRouters{"gate", "router", "shared_expert_gate", "wg"};
  return std::ranges::find(kRouters, last_part(module)) != kRouters.end();
}

}  // namespace

std::optional<Matrix> linear_in_block(const TensorInfo& tensor) {
  constexpr std::array<std::string_view, 4> kOthers{"norm", "conv", "bias", "embed"};
  if (!is_quantizable(tensor) || tensor.shape.size() != 2 || !tensor.name.ends_with(kMatrixSuffix)) return std::nullopt;
  const std::string_view module = layer_of(tensor.name);
  const bool is_linear =
      is_in_block(module) && !is_router(module) && !has_any(lowercase(last_part(module)), kOthers) && !module.contains(kOutput);
  if (!is_linear) return std::nullopt;
  return Matrix{.rows = tensor.shape[0], .columns = tensor.shape[1]};
}

std::vector<std::string> unquantized_modules(std::span<const WeightLayout> weights) {
  std::vector<std::string> found;
  const auto add = [&](std::string_view module) {
    if (std::ranges::find(found, module) == found.end()) found.emplace_back(module);
  };
  for (const WeightLayout& weight : weights) {
    if (weight.is_quantized()) continue;
    const std::string_view module = layer_of(weight.name);
    // Stacked experts are one module for a loader.
    constexpr std::string_view kExperts = ".experts";
    const std::size_t experts = module.rfind(kExperts);
    if (weight.shape.size() == 3 && experts != std::string_view::npos) add(module.substr(0, experts + kExperts.size()));
    if (weight.shape.size() != 2 || !weight.name.ends_with(kMatrixSuffix)) continue;
    if (!is_embedding(module)) add(module);
  }
  add(kOutput);
  return found;
}

std::string json_list(std::span<const std::string> texts) {
  std::string json = "[";
  for (const std::string& text : texts) {
    if (json.size() > 1) json += ", ";
    append_json_string(text, json);
  }
  return json + "]";
}

std::vector<std::string> describe_blocks_that_cross(std::span<const WeightLayout> weights) {
  constexpr std::array<std::string_view, 5> kNotLast{"q_proj", "k_proj", "gate_proj", "w1", "q_a_proj"};
  for (const WeightLayout& weight : weights) {
    if (weight.strategy != Strategy::kBlock || !weight.is_quantized() || weight.rows % kScaleBlock == 0) continue;
    if (std::ranges::find(kNotLast, last_part(layer_of(weight.name))) == kNotLast.end()) continue;
    return {fmt::format("tensor {} has {} rows; vLLM joins it with the next and needs a multiple of {}", quote(weight.name),
                        weight.rows, kScaleBlock)};
  }
  return {};
}

}  // namespace ballast
