#include "calibrate/forward/text_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::array<std::string_view, 4> kAttention{"q_proj", "k_proj", "v_proj", "o_proj"};
constexpr std::array<std::string_view, 3> kMlp{"gate_proj", "up_proj", "down_proj"};
constexpr std::array<std::string_view, 3> kOldMlp{"w1", "w3", "w2"};

// The number at the beginning of `name`, which is removed with the dot after it.
std::optional<std::uint64_t> take_number(std::string_view& name) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const auto length = static_cast<std::size_t>(stop - name.data());
  if (error != std::errc{} || length == name.size() || name[length] != '.') return std::nullopt;
  name.remove_prefix(length + 1);
  return number;
}

bool take(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

bool is_linear(std::string_view name, std::span<const std::string_view> modules) {
  return std::ranges::any_of(modules, [&](std::string_view module) {
    std::string_view rest = name;
    return take(rest, module) && (rest == ".weight" || rest == ".bias");
  });
}

bool is_of_experts(const Experts& experts, std::string_view name) {
  if (!take(name, experts.module) || !take(name, ".")) return false;
  if (name == "gate.weight" || name == "gate.bias") return true;
  if (take(name, "switch_mlp.")) return is_linear(name, kMlp) && name.ends_with(".weight");
  return take(name, "experts.") && take_number(name) && is_linear(name, experts.old_names ? kOldMlp : kMlp);
}

// Not used in a pass without a cache, or computed from the config.
bool is_unused(std::string_view name) {
  constexpr std::array<std::string_view, 5> kUnused{"rotary_emb.inv_freq", ".k_scale", ".v_scale", ".q_scale", ".kv_scale"};
  return std::ranges::any_of(kUnused, [&](std::string_view end) { return name.ends_with(end); });
}

// Whether the forward pass reads a tensor of a layer, named without the layer.
bool is_read(const TextModel& text, const TextLayer& layer, std::string_view name) {
  if (name == "input_layernorm.weight" || name == "post_attention_layernorm.weight") return true;
  if (name == "pre_feedforward_layernorm.weight" || name == "post_feedforward_layernorm.weight") return text.norms_after;
  if (layer.has_experts && is_of_experts(*text.experts, name)) return true;
  if (take(name, "self_attn.")) {
    const bool is_norm = name == "q_norm.weight" || name == "k_norm.weight";
    return is_linear(name, kAttention) || (text.query_key_norms && is_norm);
  }
  return !layer.has_experts && take(name, "mlp.") && is_linear(name, kMlp);
}

Result<void> refuse_others(const TextModel& text, const Model& model) {
  const std::string layers = text.prefix + "layers.";
  for (const TensorInfo& tensor : model.tensors()) {
    std::string_view name = tensor.name;
    if (!take(name, layers) || is_unused(name)) continue;
    const auto layer = take_number(name);
    if (layer && *layer >= text.layers.size()) {
      return fail(Errc::kUnsupported, "tensor {}: num_hidden_layers is {}, so the layer would be left out", quote(tensor.name),
                  text.layers.size());
    }
    if (layer && is_read(text, text.layers[*layer], name)) continue;
    return fail(Errc::kUnsupported, "tensor {}: layers of {} models have none, so it would be left out", quote(tensor.name),
                text.model_type);
  }
  for (const std::string& bias : {text.prefix + "norm.bias", text.head.substr(0, text.head.rfind('.')) + ".bias"}) {
    if (!model.has(bias)) continue;
    return fail(Errc::kUnsupported, "tensor {}: {} models have none, so it would be left out", quote(bias), text.model_type);
  }
  return {};
}

// Biases that are in the file are used; some programs store zeros where the config has none.
Result<void> check_biases(const TextModel& text, const Model& model, const TextConfig& config) {
  std::vector<std::string> expected;
  std::string_view reason = "attention_bias";
  const bool has_own = text.model_type == "qwen2";
  if (has_own) reason = "qwen2";
  const std::size_t count = has_own ? kAttention.size() - 1 : config.flag("attention_bias", false) ? kAttention.size() : 0;
  for (std::size_t i = 0; i < count; ++i) expected.push_back(fmt::format("self_attn.{}.bias", kAttention[i]));
  const bool in_mlp = text.model_type == "llama" && config.flag("mlp_bias", false);
  for (std::size_t layer = 0; layer < text.layers.size(); ++layer) {
    const std::string prefix = text.layer_prefix(layer);
    for (const std::string& name : expected) {
      if (!model.has(prefix + name)) return fail(Errc::kCorrupt, "no tensor {}, which {} implies", quote(prefix + name), reason);
    }
    for (const std::string_view module : in_mlp ? std::span(kMlp) : std::span<const std::string_view>()) {
      const std::string name = fmt::format("{}mlp.{}.bias", prefix, module);
      if (!model.has(name)) return fail(Errc::kCorrupt, "no tensor {}, which mlp_bias implies", quote(name));
    }
  }
  return {};
}

}  // namespace

Result<void> find_names(TextModel& text, const Model& model, const TextConfig& config, bool is_tied) {
  const std::array<std::string, 4> prefixes{"model.", "", "model.language_model.", "language_model.model."};
  const auto prefix =
      std::ranges::find_if(prefixes, [&](const std::string& each) { return model.has(each + "embed_tokens.weight"); });
  if (prefix == prefixes.end()) return fail(Errc::kCorrupt, "no tensor 'model.embed_tokens.weight'");
  text.prefix = *prefix;
  text.head = text.prefix + "embed_tokens.weight";
  const std::string own = std::string(text.prefix.starts_with("language_model.") ? "language_model." : "") + "lm_head.weight";
  if (!is_tied) {
    if (!model.has(own)) return fail(Errc::kCorrupt, "no tensor {}, and tie_word_embeddings is false", quote(own));
    text.head = own;
  }
  TRY(refuse_others(text, model));
  return check_biases(text, model, config);
}

}  // namespace ballast
