#include <ballast/architecture.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>

#include "base/checked.h"
#include "base/fail.h"
#include "base/try.h"

namespace ballast {
namespace {

using Dims = std::vector<std::uint64_t>;

struct Sizes {
  std::uint64_t vocab = 0;
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
  std::uint64_t layers = 0;
  std::uint64_t query = 0;      // heads x head_dim
  std::uint64_t key_value = 0;  // key-value heads x head_dim
  std::uint64_t head = 0;
};

Result<Sizes> read_sizes(const ModelConfig& config) {
  constexpr std::uint64_t kMostLayers = 1 << 16;
  const auto need = [](const std::optional<std::uint64_t>& value, std::string_view name) -> Result<std::uint64_t> {
    if (!value) return fail(Errc::kCorrupt, "config has no {}", name);
    if (*value == 0) return fail(Errc::kCorrupt, "{} is 0", name);
    return *value;
  };
  const std::array fields{
      need(config.vocab_size, "vocab_size"),
      need(config.hidden_size, "hidden_size"),
      need(config.intermediate_size, "intermediate_size"),
      need(config.num_hidden_layers, "num_hidden_layers"),
      need(config.num_attention_heads, "num_attention_heads"),
      need(config.num_key_value_heads, "num_key_value_heads"),
      need(config.head_dim, "head_dim"),
  };
  for (const auto& field : fields) {
    if (!field) return std::unexpected(field.error());
  }
  const auto [vocab, hidden, intermediate, layers, heads, kv_heads, head] =
      std::array{*fields[0], *fields[1], *fields[2], *fields[3], *fields[4], *fields[5], *fields[6]};
  if (layers > kMostLayers) return fail(Errc::kCorrupt, "num_hidden_layers is {}, the maximum is {}", layers, kMostLayers);
  const auto query = checked_mul(heads, head);
  const auto key_value = checked_mul(kv_heads, head);
  if (!query || !key_value) return fail(Errc::kCorrupt, "{} heads of {} overflow 64 bits", std::max(heads, kv_heads), head);
  return Sizes{.vocab = vocab,
               .hidden = hidden,
               .intermediate = intermediate,
               .layers = layers,
               .query = *query,
               .key_value = *key_value,
               .head = head};
}

// The differences of one family of decoders from the common structure.
struct Family {
  std::string_view model_type;
  bool query_key_norms;
  bool always_qkv_bias;
};

constexpr std::array kFamilies{
    Family{.model_type = "llama", .query_key_norms = false, .always_qkv_bias = false},
    Family{.model_type = "mistral", .query_key_norms = false, .always_qkv_bias = false},
    Family{.model_type = "qwen2", .query_key_norms = false, .always_qkv_bias = true},
    Family{.model_type = "qwen3", .query_key_norms = true, .always_qkv_bias = false},
};

using Expected = std::map<std::string, Dims>;

void add_layer(Expected& expected, const std::string& prefix, const Sizes& sizes, const Family& family,
               const ModelConfig& config) {
  struct Linear {
    std::string_view name;
    std::uint64_t out;
    std::uint64_t in;
    bool bias;
  };
  const bool qkv_bias = family.always_qkv_bias || config.attention_bias;
  const std::array linears{
      Linear{.name = "self_attn.q_proj", .out = sizes.query, .in = sizes.hidden, .bias = qkv_bias},
      Linear{.name = "self_attn.k_proj", .out = sizes.key_value, .in = sizes.hidden, .bias = qkv_bias},
      Linear{.name = "self_attn.v_proj", .out = sizes.key_value, .in = sizes.hidden, .bias = qkv_bias},
      Linear{.name = "self_attn.o_proj", .out = sizes.hidden, .in = sizes.query, .bias = config.attention_bias},
      Linear{.name = "mlp.gate_proj", .out = sizes.intermediate, .in = sizes.hidden, .bias = config.mlp_bias},
      Linear{.name = "mlp.up_proj", .out = sizes.intermediate, .in = sizes.hidden, .bias = config.mlp_bias},
      Linear{.name = "mlp.down_proj", .out = sizes.hidden, .in = sizes.intermediate, .bias = config.mlp_bias},
  };
  for (const Linear& linear : linears) {
    expected[fmt::format("{}{}.weight", prefix, linear.name)] = {linear.out, linear.in};
    if (linear.bias) expected[fmt::format("{}{}.bias", prefix, linear.name)] = {linear.out};
  }
  expected[prefix + "input_layernorm.weight"] = {sizes.hidden};
  expected[prefix + "post_attention_layernorm.weight"] = {sizes.hidden};
  if (family.query_key_norms) {
    expected[prefix + "self_attn.q_norm.weight"] = {sizes.head};
    expected[prefix + "self_attn.k_norm.weight"] = {sizes.head};
  }
}

Expected expect_tensors(const Sizes& sizes, const Family& family, const ModelConfig& config, std::string_view prefix) {
  Expected expected;
  expected[fmt::format("{}embed_tokens.weight", prefix)] = {sizes.vocab, sizes.hidden};
  expected[fmt::format("{}norm.weight", prefix)] = {sizes.hidden};
  for (std::uint64_t i = 0; i < sizes.layers; ++i)
    add_layer(expected, fmt::format("{}layers.{}.", prefix, i), sizes, family, config);
  return expected;
}

// A language model, or a stack of layers without a head, as in embedding models. Other heads are not supported.
bool is_known(const ModelConfig& config) {
  if (config.architectures.empty()) return true;
  const std::string_view name = config.architectures.front();
  return name.ends_with("ForCausalLM") || name.ends_with("Model");
}

// Buffers that old versions of transformers saved although they are derived from the config.
bool is_buffer(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

}  // namespace

Result<std::optional<ArchitectureReport>> check_architecture(const ModelConfig& config, std::span<const TensorInfo> tensors) {
  const auto family = std::ranges::find(kFamilies, std::string_view(config.model_type), &Family::model_type);
  if (family == kFamilies.end() || config.quantized || !is_known(config)) return std::nullopt;
  const auto sizes = TRY(read_sizes(config));

  std::unordered_map<std::string_view, const TensorInfo*> present;
  for (const TensorInfo& tensor : tensors) present.emplace(tensor.name, &tensor);
  const bool is_bare = present.contains("embed_tokens.weight") && !present.contains("model.embed_tokens.weight");
  Expected expected = expect_tensors(sizes, *family, config, is_bare ? "" : "model.");
  const bool needs_head = !config.tie_word_embeddings && !is_bare;
  if (needs_head || present.contains("lm_head.weight")) {  // some models store a tied head anyway
    expected["lm_head.weight"] = {sizes.vocab, sizes.hidden};
  }
  ArchitectureReport report{.expected_tensors = expected.size()};
  for (const auto& [name, shape] : expected) {
    const auto found = present.find(name);
    if (found == present.end()) {
      report.missing.push_back(name);
    } else if (!std::ranges::equal(found->second->shape, shape)) {
      report.misshaped.push_back(
          {.name = name, .expected = shape, .found = {found->second->shape.begin(), found->second->shape.end()}});
    }
  }
  for (const TensorInfo& tensor : tensors) {
    if (!expected.contains(std::string(tensor.name)) && !is_buffer(tensor.name)) report.unexpected.emplace_back(tensor.name);
  }
  return report;
}

}  // namespace ballast
