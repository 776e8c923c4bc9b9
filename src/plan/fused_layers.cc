#include "plan/fused_layers.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "model/layer_names.h"

namespace ballast {
namespace {

// Modules that are joined if they have the same parent. The names are those of packed_modules_mapping in vLLM's models.
struct JoinedName {
  std::string_view module;
  std::string_view joined;
};
constexpr std::array kJoined{
    JoinedName{.module = "q_proj", .joined = "qkv"},        JoinedName{.module = "k_proj", .joined = "qkv"},
    JoinedName{.module = "v_proj", .joined = "qkv"},        JoinedName{.module = "query", .joined = "qkv"},
    JoinedName{.module = "key", .joined = "qkv"},           JoinedName{.module = "value", .joined = "qkv"},
    JoinedName{.module = "gate_proj", .joined = "gate_up"}, JoinedName{.module = "up_proj", .joined = "gate_up"},
    JoinedName{.module = "w1", .joined = "gate_up"},        JoinedName{.module = "w3", .joined = "gate_up"},
    JoinedName{.module = "q_a_proj", .joined = "qkv_a"},    JoinedName{.module = "kv_a_proj_with_mqa", .joined = "qkv_a"},
};

constexpr std::string_view kExperts = ".experts.";

// What tensors that are joined have in common; empty for others.
std::string joined_name(const TensorInfo& tensor, bool joins_experts) {
  constexpr std::string_view kWeight = ".weight";
  if (tensor.shape.size() != 2 || !tensor.name.ends_with(kWeight)) return {};
  const std::size_t experts = tensor.name.rfind(kExperts);
  if (joins_experts && experts != std::string_view::npos) return std::string(tensor.name.substr(0, experts + kExperts.size()));
  const std::string_view layer = layer_of(tensor.name);
  const std::size_t dot = layer.rfind('.') + 1;
  const auto* const found = std::ranges::find(kJoined, layer.substr(dot), &JoinedName::module);
  return found == kJoined.end() ? std::string() : std::string(layer.substr(0, dot)).append(found->joined);
}

std::vector<std::vector<std::size_t>> group(const Model& model, bool joins_experts) {
  std::map<std::string, std::vector<std::size_t>> sets;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    if (std::string name = joined_name(model.tensors()[i], joins_experts); !name.empty()) sets[std::move(name)].push_back(i);
  }
  std::vector<std::vector<std::size_t>> found;
  for (auto& [name, tensors] : sets) {
    if (tensors.size() > 1) found.push_back(std::move(tensors));
  }
  return found;
}

}  // namespace

std::vector<std::vector<std::size_t>> find_fused(const Model& model) { return group(model, true); }
std::vector<std::vector<std::size_t>> find_sharing(const Model& model) { return group(model, false); }

Result<void> check_fused(const Model& model, std::span<const LayerPlan> plans, std::span<const std::size_t> tensors) {
  const auto name_of = [&](std::size_t tensor) { return quote(model.tensors()[tensor].name); };
  const LayerPlan& first = plans[tensors.front()];
  std::size_t fixed = tensors.front();
  for (const std::size_t i : tensors) {
    if (plans[i].is_quantized() != first.is_quantized()) {
      const std::size_t unquantized = first.is_quantized() ? i : tensors.front();
      const std::size_t quantized = first.is_quantized() ? tensors.front() : i;
      return fail(Errc::kInvalidArgument,
                  "tensor {} is left unquantized, but {} is not, and vLLM joins them into one layer; leave out both, or neither",
                  name_of(unquantized), name_of(quantized));
    }
    if (plans[i].is_fixed && !plans[fixed].is_fixed) fixed = i;
    if (plans[i].is_fixed && plans[i].bits != plans[fixed].bits) {
      return fail(Errc::kInvalidArgument,
                  "layer_bit_widths: tensor {} has {} bits and {} has {}, but vLLM joins them into one layer; give them the same",
                  name_of(fixed), plans[fixed].bits, name_of(i), plans[i].bits);
    }
  }
  return {};
}

}  // namespace ballast
