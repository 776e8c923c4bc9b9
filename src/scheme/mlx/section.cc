#include "scheme/mlx/section.h"

#include <algorithm>
#include <array>
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
#include "scheme/mlx/mode.h"

namespace ballast {
namespace {

TensorQuantization quantization_of(const WeightLayout& weight) {
  return {.bits = weight.bits, .group_size = weight.group_size, .mode = mode_of(weight.type)};
}

// That of the settings, with the most common bits, by parameters.
TensorQuantization usual_quantization(const OutputPlan& plan) {
  TensorQuantization usual{.bits = plan.bits, .group_size = plan.group_size, .mode = mode_of(plan.type)};
  if (usual.mode != QuantizationMode::kAffine) return usual;
  std::map<unsigned, std::uint64_t> parameters;
  for (const WeightLayout& weight : plan.weights) {
    if (weight.is_quantized()) parameters[weight.bits] += weight.rows * weight.columns;
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  if (most != parameters.end()) usual.bits = most->first;
  return usual;
}

std::string numbers(const TensorQuantization& quantization) {
  return fmt::format(R"("group_size": {}, "bits": {}, "mode": "{}")", quantization.group_size, quantization.bits,
                     name(quantization.mode));
}

// With an entry of its own for each layer that `needs` one.
std::string write_section(const OutputPlan& plan, const TensorQuantization& usual, const std::vector<bool>& needs) {
  std::string text = "{" + numbers(usual);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!needs[i]) continue;
    text += ", ";
    append_json_string(module_of(plan.weights[i].name), text);
    text += fmt::format(": {{{}}}", numbers(quantization_of(plan.weights[i])));
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

bool is_quantization(std::string_view key) {
  constexpr std::array<std::string_view, 5> kKeys{"quantization", "quantization_config", "compression_config", kTimeAware.member,
                                                  kEqualization.member};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

// A member of a config without the quantization inside, such as that of text_config. Everything else stays as it is written.
std::string without_quantization(std::string_view key, std::string_view member) {
  const std::size_t begin = member.find_first_not_of(" \t\r\n", member.find(':', key.size() + 2) + 1);
  const auto members = member[begin] == '{' ? root_members(member.substr(begin)) : decltype(root_members(""))();
  const auto is_left_out = [](const auto& entry) { return is_quantization(entry.first); };
  if (std::ranges::none_of(members, is_left_out)) return std::string(member);
  std::string text(member.substr(0, begin));
  std::string_view separator = "{";
  for (const auto& entry : members) {
    if (is_left_out(entry)) continue;
    text += fmt::format("{}\n    {}", separator, entry.second);
    separator = ",";
  }
  return text += separator == "{" ? "{}" : "\n  }";
}

}  // namespace

std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kSuffix = ".weight";
  return tensor.ends_with(kSuffix) ? tensor.substr(0, tensor.size() - kSuffix.size()) : tensor;
}

Result<std::string> quantization_section(const OutputPlan& plan) {
  const TensorQuantization usual = usual_quantization(plan);
  std::vector<bool> needs;
  for (const WeightLayout& weight : plan.weights) needs.push_back(weight.is_quantized() && quantization_of(weight) != usual);
  for (const bool again : {true, false}) {
    std::string text = write_section(plan, usual, needs);
    const auto config = parse_mlx_quantization_section(fmt::format(R"({{"quantization": {}}})", text));
    if (!config) return std::unexpected(config.error());
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < plan.weights.size(); ++i) {
      if (plan.weights[i].bits == 0) continue;
      const auto found = (*config)->find(plan.weights[i].name);
      if (found == quantization_of(plan.weights[i])) continue;
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
    const bool is_replaced = std::ranges::find(members, key, &std::pair<std::string, std::string>::first) != members.end();
    if (!is_replaced) text += fmt::format("{}\n  {}", text == "{" ? "" : ",", member);
  }
  for (const auto& [key, value] : members) text += fmt::format("{}\n  \"{}\": {}", text == "{" ? "" : ",", key, value);
  return text += "\n}\n";
}

std::string with_quantization(std::string_view config, std::string_view section, std::span<const SideFileKind> sides) {
  std::string text = "{";
  for (const auto& [key, member] : root_members(config)) {
    if (is_quantization(key)) continue;
    text += fmt::format("{}\n  {}", text == "{" ? "" : ",", without_quantization(key, member));
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
