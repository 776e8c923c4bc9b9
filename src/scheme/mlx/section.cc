#include "scheme/mlx/section.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ballast/mlx_quantization.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

// The most common bits, by parameters.
unsigned usual_bits(const OutputPlan& plan) {
  std::map<unsigned, std::uint64_t> parameters;
  for (const WeightLayout& weight : plan.weights) {
    if (weight.is_quantized()) parameters[weight.bits] += weight.rows * weight.columns;
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  return most == parameters.end() ? plan.bits : most->first;
}

// With an entry of its own for each layer that `needs` one.
std::string write_section(const OutputPlan& plan, unsigned bits, const std::vector<bool>& needs) {
  std::string text = fmt::format(R"({{"group_size": {}, "bits": {}, "mode": "affine")", plan.group_size, bits);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!needs[i]) continue;
    text += ", ";
    append_json_string(module_of(plan.weights[i].name), text);
    text +=
        fmt::format(R"(: {{"group_size": {}, "bits": {}, "mode": "affine"}})", plan.weights[i].group_size, plan.weights[i].bits);
  }
  return text + "}";
}

// The members of a JSON object, each as its key and its text.
std::vector<std::pair<std::string_view, std::string_view>> root_members(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> members;
  JsonWalk walk(text);
  std::size_t begin = 0;
  std::string_view key;
  for (JsonWalk::Token token{}; walk.next(token);) {
    if (token.kind == JsonWalk::Kind::kKey && walk.depth() == 1) {
      begin = token.begin;
      key = walk.key();
    } else if (walk.depth() == 1 && token.kind != JsonWalk::Kind::kOpen) {
      members.emplace_back(key, text.substr(begin, token.end - begin));
    }
  }
  return members;
}

}  // namespace

std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  return tensor.ends_with(kSuffix) ? tensor.substr(0, tensor.size() - kSuffix.size()) : tensor;
}

Result<std::string> quantization_section(const OutputPlan& plan) {
  const unsigned bits = usual_bits(plan);
  std::vector<bool> needs;
  for (const WeightLayout& weight : plan.weights) needs.push_back(weight.is_quantized() && weight.bits != bits);
  for (const bool again : {true, false}) {
    std::string text = write_section(plan, bits, needs);
    const auto config = parse_mlx_quantization_section(fmt::format(R"({{"quantization": {}}})", text));
    if (!config) return std::unexpected(config.error());
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < plan.weights.size(); ++i) {
      if (plan.weights[i].bits == 0) continue;
      const auto found = (*config)->find(plan.weights[i].name);
      if (found && found->bits == plan.weights[i].bits && found->group_size == plan.weights[i].group_size) continue;
      needs[i] = true;
      wrong = i;
    }
    if (!wrong) return text;
    if (!again) {
      return fail(Errc::kUnsupported,
                  "{}: tensor {}: the config of MLX cannot tell it from other tensors; rename it with convert",
                  escape(plan.model_path), quote(plan.weights[*wrong].name));
    }
  }
  return fail(Errc::kUnsupported, "cannot write a config that describes the layers");
}

std::string with_members(std::string_view config, std::span<const std::pair<std::string, std::string>> members) {
  if (members.empty()) return std::string(config);
  std::string text = "{";
  for (const auto& [key, member] : root_members(config)) {
    const bool is_replaced = std::ranges::any_of(members, [&](const auto& other) { return other.first == key; });
    if (!is_replaced) text += fmt::format("{}\n  {}", text == "{" ? "" : ",", member);
  }
  for (const auto& [key, value] : members) text += fmt::format("{}\n  \"{}\": {}", text == "{" ? "" : ",", key, value);
  return text += "\n}\n";
}

std::string with_quantization(std::string_view config, std::string_view section, std::span<const SideFileKind> sides) {
  std::string text = "{";
  for (const auto& [key, member] : root_members(config)) {
    if (key == "quantization" || key == "quantization_config" || key == kTimeAware.member || key == kEqualization.member)
      continue;
    text += fmt::format("{}\n  {}", text == "{" ? "" : ",", member);
  }
  if (section.empty()) return text += "\n}\n";
  for (const SideFileKind& side : sides) {
    text += fmt::format("{}\n  \"{}\": \"{}\"", text == "{" ? "" : ",", side.member, side.file);
  }
  text +=
      fmt::format("{}\n  \"quantization\": {},\n  \"quantization_config\": {}\n}}\n", text == "{" ? "" : ",", section, section);
  return text;
}

}  // namespace ballast
