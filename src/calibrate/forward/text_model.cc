#include "calibrate/forward/text_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/text_config.h"
#include "calibrate/forward/text_names.h"
#include "convert/kernels.h"
#include "scheme/foreign.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostLayers = 1 << 16;
constexpr std::uint64_t kMostSize = 1 << 30;

// The defaults of a family, where its configs may leave a setting out, and what sets it apart.
struct TextFamily {
  std::string_view model_type;
  double rope_theta = 10'000;
  double epsilon = 1e-6;
  bool query_key_norms = false;
  bool is_gemma = false;
  bool is_tied = false;
  bool has_experts = false;
};

constexpr std::array kTextFamilies{
    TextFamily{.model_type = "llama"},
    TextFamily{.model_type = "mistral"},
    TextFamily{.model_type = "qwen2"},
    TextFamily{.model_type = "qwen3", .query_key_norms = true},
    TextFamily{.model_type = "gemma3_text", .rope_theta = 1e6, .query_key_norms = true, .is_gemma = true, .is_tied = true},
    TextFamily{.model_type = "qwen3_moe", .query_key_norms = true, .has_experts = true},
    TextFamily{.model_type = "mixtral", .rope_theta = 1e6, .epsilon = 1e-5, .has_experts = true},
};

const TextFamily* find_family(std::string_view model_type) {
  if (model_type == "gemma3") model_type = "gemma3_text";
  for (const TextFamily& family : kTextFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::unexpected<Error> unsupported(std::string_view what) {
  std::string known;
  for (const TextFamily& family : kTextFamilies) {
    if (!known.empty()) known += ", ";
    known += family.model_type;
  }
  return fail(Errc::kUnsupported, "{}; Ballast can run {}", what, known);
}

// Settings that would change the result, and that no supported model has.
Result<void> refuse_unknown(const TextConfig& config) {
  for (const std::string_view name :
       {"attn_logit_softcapping", "final_logit_softcapping", "clip_qkv", "logit_scale", "logits_scaling", "embedding_multiplier",
        "residual_multiplier", "attention_multiplier", "no_rope_layers", "scale_emb", "scale_depth"}) {
    if (config.has(name)) return unsupported(fmt::format("the config has {}, which is not supported", name));
  }
  for (const std::string_view name : {"rope_traditional", "rope_interleaved", "use_bidirectional_attention"}) {
    if (config.flag(name, false)) return unsupported(fmt::format("{} is true, which is not supported", name));
  }
  return {};
}

Result<void> refuse_partial(const std::optional<TextConfig>& settings) {
  if (settings && settings->number("partial_rotary_factor", 1) != 1) return unsupported("partial_rotary_factor is not 1");
  return {};
}

// Llama 3: long wavelengths are stretched, short ones are not, and those between are interpolated.
double stretch(double frequency, const TextConfig& scaling) {
  const double factor = scaling.number("factor", 8);
  const double low = scaling.number("low_freq_factor", 1);
  const double high = scaling.number("high_freq_factor", 4);
  const double before = scaling.number("original_max_position_embeddings", 8192);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < before / high) return frequency;
  if (wavelength > before / low) return frequency / factor;
  const double share = (before / wavelength - low) / (high - low);
  return (1 - share) * frequency / factor + share * frequency;
}

Result<std::string> rope_type(const TextConfig& scaling) {
  const auto old_name = scaling.text("type");
  std::string type = scaling.text("rope_type").value_or(old_name.value_or("default"));
  if (old_name && *old_name != type) return fail(Errc::kCorrupt, "rope_type is {}, type is {}", quote(type), quote(*old_name));
  if (type != "default" && type != "linear" && type != "llama3") {
    return unsupported(fmt::format("rope type {} is not supported: it must be default, linear or llama3", quote(type)));
  }
  if (type == "default") return type;
  if (const double factor = scaling.number("factor", 0); !(factor > 0) || !std::isfinite(factor)) {
    return fail(Errc::kCorrupt, "the factor of rope type {} is {}, it must be above 0", quote(type), factor);
  }
  const double low = scaling.number("low_freq_factor", 1);
  const double high = scaling.number("high_freq_factor", 4);
  if (!(low > 0) || !(high > low)) {
    return fail(Errc::kCorrupt, "low_freq_factor is {}, high_freq_factor is {}: they must be above 0, and the second larger", low,
                high);
  }
  return type;
}

Result<Rope> make_rope(double theta, std::uint64_t head_dim, const std::optional<TextConfig>& scaling) {
  TRY(refuse_partial(scaling));
  const std::string type = scaling ? TRY(rope_type(*scaling)) : "default";
  if (!(theta > 0) || !std::isfinite(theta)) return fail(Errc::kCorrupt, "rope_theta is {}, it must be above 0", theta);
  Rope rope;
  for (std::uint64_t j = 0; j < head_dim / 2; ++j) {
    double frequency = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    if (type == "linear") frequency /= scaling->number("factor", 1);
    if (type == "llama3") frequency = stretch(frequency, *scaling);
    rope.frequencies.push_back(static_cast<float>(frequency));
  }
  return rope;
}

Result<void> read_ropes(TextModel& text, const TextConfig& config, const TextFamily& family) {
  TRY(refuse_partial(config));
  const auto parameters = config.section("rope_parameters");  // transformers 5
  TRY(refuse_partial(parameters));
  const auto full = parameters ? parameters->section("full_attention") : std::nullopt;
  const auto local = parameters ? parameters->section("sliding_attention") : std::nullopt;
  const auto& settings = full ? full : parameters;
  const auto scaling = settings ? settings : config.section("rope_scaling");
  const double theta = config.number("rope_theta", family.rope_theta);
  text.rope = TRY(make_rope(settings ? settings->number("rope_theta", theta) : theta, text.head_dim, scaling));
  if (!family.is_gemma) return {};
  const double local_theta = config.number("rope_local_base_freq", 10'000);
  text.local_rope = TRY(make_rope(local ? local->number("rope_theta", local_theta) : local_theta, text.head_dim, local));
  return {};
}

// The kind of attention of each layer; empty if the config has none.
Result<std::vector<std::string>> layer_types(const TextConfig& config, std::uint64_t layers) {
  std::vector<std::string> types = config.texts("layer_types");
  if (!types.empty() && types.size() != layers) {
    return fail(Errc::kCorrupt, "layer_types has {} entries, num_hidden_layers is {}", types.size(), layers);
  }
  for (const std::string& type : types) {
    if (type == "sliding_attention" || type == "full_attention") continue;
    return unsupported(fmt::format("layer type {} is not supported", quote(type)));
  }
  return types;
}

// The window of the layers that slide; 0 if none do.
Result<std::uint64_t> sliding_window(const TextConfig& config, const TextFamily& family, bool has_types) {
  const bool is_qwen = family.model_type.starts_with("qwen");
  const bool is_mistral = family.model_type == "mistral";
  const std::uint64_t fallback = is_mistral && !config.mentions("sliding_window") ? 4096 : 0;
  const std::uint64_t window = config.whole("sliding_window", fallback);
  if (!is_qwen) return family.model_type == "llama" && !has_types ? 0 : window;
  if (!config.flag("use_sliding_window", false)) return 0;
  if (window == 0) return fail(Errc::kCorrupt, "use_sliding_window is true, but sliding_window is missing");
  // Versions of the original program disagree about which layers slide.
  if (family.has_experts && !has_types) return unsupported("use_sliding_window is true without layer_types");
  return window;
}

Result<void> read_layers(TextModel& text, const TextConfig& config, const TextFamily& family) {
  const std::uint64_t count = config.whole("num_hidden_layers", std::nullopt);
  if (count == 0 || count > kMostLayers)
    return fail(Errc::kCorrupt, "num_hidden_layers is {}, it must be 1 to {}", count, kMostLayers);
  const std::vector<std::string> types = TRY(layer_types(config, count));
  const std::uint64_t window = TRY(sliding_window(config, family, !types.empty()));
  const std::uint64_t first_local = family.model_type.starts_with("qwen") ? config.whole("max_window_layers", 28) : 0;
  const std::uint64_t pattern = config.whole("sliding_window_pattern", config.whole("_sliding_window_pattern", 6));
  if (pattern == 0) return fail(Errc::kCorrupt, "sliding_window_pattern is 0");
  const std::uint64_t step = config.whole("decoder_sparse_step", 1);
  const std::vector<std::uint64_t> dense = config.wholes("mlp_only_layers");
  for (std::uint64_t i = 0; i < count; ++i) {
    bool is_local = window > 0 && i >= first_local;
    if (family.is_gemma) is_local = (i + 1) % pattern != 0;
    if (!types.empty()) is_local = types[i] == "sliding_attention";
    if (is_local && window == 0) return fail(Errc::kCorrupt, "layer {} has sliding attention, but there is no sliding_window", i);
    text.layers.push_back(
        {.window = is_local ? window : 0,
         .local_rope = is_local && family.is_gemma,
         .has_experts = family.has_experts && step != 0 && (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end()});
  }
  return {};
}

Result<void> read_experts(TextModel& text, const TextConfig& config) {
  const bool is_mixtral = text.model_type == "mixtral";
  Experts experts{.count = config.whole(is_mixtral ? "num_local_experts" : "num_experts", std::nullopt),
                  .per_token = config.whole("num_experts_per_tok", std::nullopt),
                  .intermediate = is_mixtral ? text.intermediate : config.whole("moe_intermediate_size", std::nullopt),
                  .normalize = is_mixtral || config.flag("norm_topk_prob", false),
                  .module = is_mixtral ? "block_sparse_moe" : "mlp",
                  .old_names = is_mixtral};
  if (experts.count == 0 || experts.per_token == 0 || experts.per_token > experts.count || experts.count > kMostLayers) {
    return fail(Errc::kCorrupt, "{} experts, of which {} are used for each token, are not possible", experts.count,
                experts.per_token);
  }
  text.experts = std::move(experts);
  return {};
}

Result<void> check_sizes(const TextModel& text) {
  using Size = std::pair<std::string_view, std::uint64_t>;
  for (const auto& [name, value] :
       {Size("vocab_size", text.vocab), Size("hidden_size", text.hidden), Size("intermediate_size", text.intermediate),
        Size("num_attention_heads", text.heads), Size("num_key_value_heads", text.kv_heads), Size("head_dim", text.head_dim)}) {
    if (value == 0 || value > kMostSize) return fail(Errc::kCorrupt, "{} is {}, it must be 1 to {}", name, value, kMostSize);
  }
  if (text.heads > kMostSize / text.head_dim) {
    return fail(Errc::kCorrupt, "{} heads of {} are more than {}", text.heads, text.head_dim, kMostSize);
  }
  if (text.heads % text.kv_heads != 0) {
    return fail(Errc::kCorrupt, "num_attention_heads {} is not a multiple of num_key_value_heads {}", text.heads, text.kv_heads);
  }
  if (text.head_dim % 2 != 0) return fail(Errc::kCorrupt, "head_dim {} is odd", text.head_dim);
  return {};
}

Result<void> read_activation(TextModel& text, const TextConfig& config, const TextFamily& family) {
  const std::string fallback = family.is_gemma ? "gelu_pytorch_tanh" : "silu";
  const std::string name = config.text(family.is_gemma ? "hidden_activation" : "hidden_act").value_or(fallback);
  if (name == "silu" || name == "swish") return {};
  if (name != "gelu_pytorch_tanh") return unsupported(fmt::format("activation {} is not supported", quote(name)));
  text.activation = Activation::kGeluTanh;
  return {};
}

// Gemma multiplies embeddings by √hidden as BF16.
float rounded_to_bf16(float value) {
  std::array<std::byte, sizeof(std::uint16_t)> code{};
  from_f32(DType::kBF16, std::as_bytes(std::span(&value, 1)).data(), 1, code.data(), Stores::kOrdinary);
  to_f32(DType::kBF16, code.data(), 1, std::as_writable_bytes(std::span(&value, 1)).data(), Stores::kOrdinary);
  return value;
}

Result<TextModel> read_text_model(const Model& model, const TextConfig& config) {
  const std::string model_type = config.model_type();
  const TextFamily* const family = find_family(model_type);
  if (family == nullptr) {
    return unsupported(model_type.empty() ? "the config has no model_type"
                                          : fmt::format("model_type {} is not supported", quote(model_type)));
  }
  TRY(refuse_unknown(config));
  TextModel text{.model_type = std::string(family->model_type)};
  text.vocab = config.whole("vocab_size", family->is_gemma ? std::optional<std::uint64_t>(262'208) : std::nullopt);
  text.hidden = config.whole("hidden_size", std::nullopt);
  text.intermediate = config.whole("intermediate_size", std::nullopt);
  text.heads = config.whole("num_attention_heads", family->is_gemma ? std::optional<std::uint64_t>(8) : std::nullopt);
  text.kv_heads = config.whole("num_key_value_heads", family->is_gemma ? 4 : text.heads);
  const std::uint64_t usual = text.heads == 0 ? 0 : text.hidden / text.heads;
  text.head_dim = config.whole("head_dim", family->is_gemma ? 256 : family->query_key_norms ? 128 : usual);
  if (config.error()) return std::unexpected(*config.error());
  TRY(check_sizes(text));
  text.epsilon = static_cast<float>(config.number("rms_norm_eps", family->epsilon));
  text.query_key_norms = family->query_key_norms;
  text.norms_add_one = text.norms_after = family->is_gemma;
  if (family->is_gemma) text.embedding_scale = rounded_to_bf16(std::sqrt(static_cast<float>(text.hidden)));
  const double scaled_by = family->is_gemma ? config.number("query_pre_attn_scalar", 256) : static_cast<double>(text.head_dim);
  if (!(scaled_by > 0)) return fail(Errc::kCorrupt, "query_pre_attn_scalar is {}, it must be above 0", scaled_by);
  text.attention_scale = static_cast<float>(1 / std::sqrt(scaled_by));
  TRY(read_activation(text, config, *family));
  TRY(read_ropes(text, config, *family));
  TRY(read_layers(text, config, *family));
  if (family->has_experts) TRY(read_experts(text, config));
  TRY(find_names(text, model, config, config.flag("tie_word_embeddings", family->is_tied)));
  if (config.error()) return std::unexpected(*config.error());
  return text;
}

}  // namespace

Result<TextModel> TextModel::make(const Model& model) {
  const std::string path = escape(model.path());
  TRY(refuse_codes(model));
  if (!model.config())
    return fail(Errc::kUnsupported, "{}: no config.json, which describes the architecture; open the model's directory", path);
  simdjson::dom::parser parser;
  auto config = TextConfig::parse(parser, model.config()->json);
  if (!config) return fail_at(path, config.error());
  auto text = read_text_model(model, *config);
  if (!text) return fail_at(path, text.error());
  return text;
}

std::string TextModel::layer_prefix(std::size_t layer) const { return fmt::format("{}layers.{}.", prefix, layer); }

}  // namespace ballast
