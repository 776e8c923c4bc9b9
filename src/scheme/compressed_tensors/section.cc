#include "scheme/compressed_tensors/section.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "model/layer_names.h"
#include "scheme/linear_layers.h"

namespace ballast {
namespace {

// The first version that writes words of 3, 5, 6 and 7 bits without padding.
constexpr std::string_view kVersion = "0.17.0";
constexpr std::string_view kExperts = ".experts.";

std::string_view format_of(QuantizeType type) {
  switch (type) {
    case QuantizeType::kInt: break;
    case QuantizeType::kFp8: return "float-quantized";
    case QuantizeType::kMxfp4: return "mxfp4-pack-quantized";
    case QuantizeType::kMxfp8: return "mxfp8-quantized";
    case QuantizeType::kNvfp4: return "nvfp4-pack-quantized";
  }
  return "pack-quantized";
}

std::string strategy_json(const WeightLayout& weight) {
  switch (weight.strategy) {
    case Strategy::kTensor: return R"("strategy": "tensor")";
    case Strategy::kChannel: return R"("strategy": "channel")";
    case Strategy::kBlock: return fmt::format(R"("strategy": "block", "block_structure": [{0}, {0}])", kScaleBlock);
    case Strategy::kGroup: break;
  }
  const std::string_view strategy = weight.type == QuantizeType::kNvfp4 ? "tensor_group" : "group";
  return fmt::format(R"("strategy": "{}", "group_size": {})", strategy, weight.group_size);
}

std::string weights_json(const WeightLayout& weight, unsigned bits) {
  const bool is_integer = weight.type == QuantizeType::kInt;
  std::string_view scale_dtype;
  if (weight.type == QuantizeType::kNvfp4) scale_dtype = R"(, "scale_dtype": "torch.float8_e4m3fn")";
  if (weight.type == QuantizeType::kMxfp4 || weight.type == QuantizeType::kMxfp8)
    scale_dtype = R"(, "scale_dtype": "torch.uint8")";
  return fmt::format(R"({{"num_bits": {}, "type": "{}", "symmetric": {}, {}, "dynamic": false{}}})", bits,
                     is_integer ? "int" : "float", weight.affine != Affine::kScaleCode, strategy_json(weight), scale_dtype);
}

// FP8 weights are multiplied by FP8 inputs, whose scales are found while the model runs.
std::string activations_json(const WeightLayout& weight) {
  if (weight.type != QuantizeType::kFp8) return "null";
  const std::string strategy = weight.strategy == Strategy::kBlock
                                   ? fmt::format(R"("strategy": "group", "group_size": {})", kScaleBlock)
                                   : R"("strategy": "token")";
  return fmt::format(R"({{"num_bits": 8, "type": "float", "symmetric": true, {}, "dynamic": true}})", strategy);
}

// A regular expression for all experts of a layer, which are one module to a loader, or the name.
std::string target_of(std::string_view module) {
  const std::size_t experts = module.rfind(kExperts);
  if (experts == std::string_view::npos) return std::string(module);
  std::string pattern = "re:";
  for (const char c : module.substr(0, experts + kExperts.size())) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
  return pattern + ".*";
}

void add_unique(std::vector<std::string>& texts, std::string text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

// Layers of one number of bits.
struct Group {
  const WeightLayout* first = nullptr;
  std::uint64_t parameters = 0;
  std::vector<std::string> targets;
};

}  // namespace

std::string compressed_tensors_section(const OutputPlan& plan) {
  std::map<unsigned, Group> groups;
  for (const WeightLayout& weight : plan.weights) {
    if (!weight.is_quantized()) continue;
    Group& group = groups[weight.bits];
    if (group.first == nullptr) group.first = &weight;
    group.parameters += weight.elements();
    add_unique(group.targets, target_of(layer_of(weight.name)));
  }
  const auto most = std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.parameters; });
  std::string text;
  unsigned number = 0;
  for (const auto& [bits, group] : groups) {
    const bool is_most = bits == most->first;
    const std::vector<std::string> linear{"Linear"};
    text += fmt::format(R"({}"group_{}": {{"targets": {}, "weights": {}, "input_activations": {}, "output_activations": null}})",
                        number == 0 ? "" : ", ", number, json_list(is_most ? linear : group.targets),
                        weights_json(*group.first, bits), activations_json(*group.first));
    ++number;
  }
  std::vector<std::string> ignored;
  for (const std::string& module : unquantized_modules(plan.weights)) add_unique(ignored, target_of(module));
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "format": "{}", "quantization_status": "compressed", "version": "{}", )"
      R"("config_groups": {{{}}}, "ignore": {}, "kv_cache_scheme": null, "global_compression_ratio": null}})",
      format_of(plan.type), kVersion, text, json_list(ignored));
}

}  // namespace ballast
