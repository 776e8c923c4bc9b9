#include "plan/layer_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>

#include <ballast/glob.h>

#include "base/fail.h"
#include "base/regex.h"
#include "base/text.h"
#include "base/try.h"
#include "model/layer_names.h"
#include "plan/fused_layers.h"
#include "plan/mixed_bits.h"
#include "plan/type_settings.h"
#include "scheme/scheme.h"

namespace ballast {
namespace {

constexpr unsigned kUnquantized = 16;  // in layer_bit_widths
constexpr unsigned kHigh = 8;          // the bits of sensitive layers

bool is_sensitive(std::string_view tensor) {
  constexpr std::array<std::string_view, 7> kParts{"embed", "norm", "ln_", "lm_head", ".head.", "pooler", "time_emb"};
  return has_any(lowercase(tensor), kParts);
}

// Routers of experts are small, and errors in them send tokens to the wrong experts.
bool is_router(std::string_view tensor) {
  constexpr std::array<std::string_view, 3> kEnds{".gate.weight", ".router.weight", ".shared_expert_gate.weight"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return tensor.ends_with(end); });
}

bool is_of_time(std::string_view tensor) {
  constexpr std::array<std::string_view, 6> kParts{"time_emb", "timestep_emb", "t_embedder", "time_mlp", "time_proj", "time_in."};
  return has_any(lowercase(tensor), kParts);
}

// The first and last layers of a diffusion model, by their names in U-Nets and diffusion transformers.
bool is_at_the_ends(std::string_view tensor) {
  constexpr std::array<std::string_view, 10> kParts{"conv_in.",     "conv_out.", "x_embedder.", "patch_embed", "img_in.",
                                                    "final_layer.", "norm_out.", "to_rgb",      "txt_in.",     "input_blocks.0."};
  constexpr std::array<std::string_view, 4> kBegins{"proj_in.", "proj_out.", "out.", "head."};
  // Prefixes of the denoiser in whole pipelines.
  constexpr std::array<std::string_view, 5> kRoots{"model.diffusion_model.", "diffusion_model.", "transformer.", "unet.",
                                                   "model."};
  const std::string lower = lowercase(tensor);
  std::string_view name = lower;
  const auto* const root = std::ranges::find_if(kRoots, [&](std::string_view each) { return name.starts_with(each); });
  if (root != kRoots.end()) name.remove_prefix(root->size());
  return has_any(name, kParts) || std::ranges::any_of(kBegins, [&](std::string_view begin) { return name.starts_with(begin); });
}

// Layers that turn time and class into the scale and shift of other layers.
bool is_modulation(std::string_view tensor) {
  constexpr std::array<std::string_view, 7> kParts{"modulation",           "adaln",       "_mod.", ".mod.", "norm1.linear",
                                                   "norm1_context.linear", ".norm.linear"};
  return has_any(lowercase(tensor), kParts);
}

// Constants that some models store: causal masks such as attn.bias, which are added to scores.
bool is_mask(const TensorInfo& tensor) {
  const std::string_view last = tensor.name.substr(tensor.name.rfind('.') + 1);
  return last.ends_with("mask") || last == "masked_bias" || (last == "bias" && tensor.shape.size() > 2);
}

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

bool matches(std::string_view pattern, std::string_view tensor) {
  return glob_match(pattern, tensor) || glob_match(pattern, layer_of(tensor));
}

// Names and globs of one setting, with or without the ".weight" of tensors. Records which ones matched.
class Names {
 public:
  Names(std::string_view field, std::vector<std::string> names) : field_(field) {
    for (std::string& name : names) {
      if (is_glob(name)) globs_.push_back(name);
      used_.emplace(std::move(name), false);
    }
    std::ranges::sort(
        globs_, [](const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
  }

  struct Match {
    std::string_view name;
    bool is_exact;
  };

  // Matches an exact name first, then the longest glob.
  std::optional<Match> match(std::string_view tensor) {
    std::optional<Match> found;
    for (const std::string_view spelling : {tensor, layer_of(tensor)}) {
      const auto name = used_.find(spelling);
      if (name == used_.end()) continue;
      name->second = true;
      if (!found) found = {.name = name->first, .is_exact = true};
    }
    for (const std::string& glob : globs_) {
      if (!matches(glob, tensor)) continue;
      used_.find(glob)->second = true;
      if (!found) found = {.name = glob, .is_exact = false};
    }
    return found;
  }

  Result<void> check_used() const {
    for (const auto& [name, used] : used_) {
      if (!used) return fail(Errc::kInvalidArgument, "{} {} matches no tensor", field_, quote(name));
    }
    return {};
  }

 private:
  std::string_view field_;
  std::map<std::string, bool, std::less<>> used_;
  std::vector<std::string> globs_;  // longest first, then alphabetical
};

class Patterns {
 public:
  static Result<Patterns> compile(std::string_view field, std::span<const std::string> texts) {
    Patterns patterns;
    patterns.field_ = field;
    for (const std::string& text : texts) {
      auto regex = Regex::compile(text);
      if (!regex) return fail_at(field, regex.error());
      patterns.entries_.push_back({.text = text, .regex = std::move(*regex), .used = false});
    }
    return patterns;
  }

  bool match(std::string_view tensor) {
    bool found = false;
    for (Entry& entry : entries_) {
      if (!entry.regex.found_in(tensor)) continue;
      entry.used = true;
      found = true;
    }
    return found;
  }

  Result<void> check_used() const {
    const auto unused = std::ranges::find(entries_, false, &Entry::used);
    if (unused == entries_.end()) return {};
    return fail(Errc::kInvalidArgument, "{} {} matches no tensor", field_, quote(unused->text));
  }

 private:
  struct Entry {
    std::string text;
    Regex regex;
    bool used;
  };
  std::string_view field_;
  std::vector<Entry> entries_;
};

class Planner {
 public:
  static Result<Planner> make(const Model& model, const QuantizeConfig& config) {
    auto patterns = TRY(Patterns::compile("sensitive_layer_patterns", config.sensitive_layer_patterns));
    Planner planner(config, std::move(patterns));
    planner.is_diffusion_ = is_diffusion_model(model, config.modality.value_or(model.modality()));
    planner.has_experts_ = std::ranges::any_of(model.tensors(), is_of_experts, &TensorInfo::name);
    if (config.recipe == Recipe::kUniform) return planner;
    auto mixed = TRY(MixedBits::make(model, config.recipe));
    planner.mixed_ = std::move(mixed);
    return planner;
  }

  Result<LayerPlan> plan(const TensorInfo& tensor) {
    // All three match every tensor, to record which patterns are used.
    const bool by_name = names_.match(tensor.name).has_value();
    const bool by_pattern = patterns_.match(tensor.name);
    const auto named = widths_.match(tensor.name);
    const unsigned width = named ? config_.layer_bit_widths.find(std::string(named->name))->second : 0;

    const auto matrix = scheme_.matrix_of(tensor);
    if (!matrix && named && named->is_exact && width != kUnquantized) {
      return fail(Errc::kInvalidArgument,
                  "layer_bit_widths: tensor {} is {} {}, which format {} does not quantize; leave it out or set it to 16",
                  quote(tensor.name), name(tensor.dtype), to_string(tensor.shape), name(config_.format));
    }
    const bool skipped = !named && ((config_.skip_sensitive_layers && is_sensitive(tensor.name)) ||
                                    (is_diffusion_ && (is_of_time(tensor.name) || is_at_the_ends(tensor.name))));
    if (!matrix || by_name || by_pattern || width == kUnquantized || skipped) return LayerPlan{};
    LayerPlan plan{.bits = width,
                   .group_size = config_.group_size,
                   .strategy = strategy_of(config_),
                   .is_asymmetric = config_.asymmetric,
                   .least_bits = width,
                   .is_fixed = named.has_value(),
                   .rows = matrix->rows,
                   .columns = matrix->columns,
                   .restore = {}};
    if (!named) choose_storage(tensor.name, plan);
    plan.group_size = group_size_of(plan);
    if (!named && (is_mask(tensor) || matrix->columns == 1 || !plan.is_quantized() || grows(tensor, plan))) return LayerPlan{};
    if (plan.strategy == Strategy::kGroup) TRY(scheme_.check_groups(tensor, *matrix, plan.group_size));
    return plan;
  }

  Result<void> check_used() const {
    TRY(names_.check_used());
    TRY(patterns_.check_used());
    return widths_.check_used();
  }

 private:
  Planner(const QuantizeConfig& config, Patterns patterns)
      : config_(config),
        scheme_(scheme_of(config.format)),
        names_("sensitive_layer_names", config.sensitive_layer_names),
        patterns_(std::move(patterns)),
        widths_("layer_bit_widths", keys_of(config.layer_bit_widths)) {}

  static std::vector<std::string> keys_of(const std::map<std::string, unsigned>& pairs) {
    const auto keys = std::views::keys(pairs);
    return {keys.begin(), keys.end()};
  }

  // Columns that share a scale.
  static unsigned group_size_of(const LayerPlan& plan) {
    if (plan.strategy == Strategy::kGroup) return plan.group_size;
    const std::uint64_t most = plan.strategy == Strategy::kBlock ? kScaleBlock : plan.columns;
    return static_cast<unsigned>(std::min(most, plan.columns));
  }

  // Float types have no width of their own for layers that need more bits. These get 8-bit integers, as in mlx-lm, or stay as
  // they are in formats whose layers all have one type.
  void choose_storage(std::string_view tensor, LayerPlan& plan) const {
    plan.least_bits = least_bits(tensor);
    const FloatType* const type = float_type(config_.type);
    if (type == nullptr) {
      plan.bits = std::max(default_bits(tensor), plan.least_bits);
    } else if (plan.least_bits == kHigh && config_.format == QuantizeFormat::kMlx) {
      plan.bits = kHigh;
      plan.group_size = plan.columns % 64 == 0 ? 64 : 32;
    } else if (plan.least_bits <= type->bits) {
      plan.bits = type->bits;
      plan.group_size = type->group_size;
      plan.type = type->type;
    }
  }

  // Whether codes and parameters take as much room as the values.
  bool grows(const TensorInfo& tensor, const LayerPlan& plan) const {
    return plan.rows * layout_of(scheme_, tensor, plan).format().stored_bytes() >= tensor.bytes();
  }

  unsigned default_bits(std::string_view tensor) const { return mixed_ ? mixed_->bits(tensor) : config_.bit_width; }

  unsigned least_bits(std::string_view tensor) const {
    return (has_experts_ && is_router(tensor)) || (is_diffusion_ && is_modulation(tensor)) ? kHigh : 2;
  }

  const QuantizeConfig& config_;
  const WritableScheme& scheme_;
  Names names_;
  Patterns patterns_;
  Names widths_;
  std::optional<MixedBits> mixed_;
  bool has_experts_ = false;
  bool is_diffusion_ = false;
};

}  // namespace

bool is_diffusion_model(const Model& model, Modality modality) {
  return modality == Modality::kImage || modality == Modality::kAudio ||
         std::ranges::any_of(model.tensors(), is_of_time, &TensorInfo::name);
}

Result<Plan> Plan::make(const Model& model, const QuantizeConfig& config) {
  const std::string path = escape(model.path());
  auto planner = Planner::make(model, config);
  if (!planner) return fail_at(path, planner.error());
  std::vector<LayerPlan> plans;
  std::optional<Error> error;
  for (const TensorInfo& tensor : model.tensors()) {
    auto plan = planner->plan(tensor);
    if (!plan && !error) error = std::move(plan.error());
    plans.push_back(plan.value_or(LayerPlan{}));
  }
  // First, because a name that matches nothing may be the cause of the other error.
  if (const auto used = planner->check_used(); !used) return fail_at(path, used.error());
  if (error) return fail_at(path, std::move(*error));
  Plan plan(std::move(plans));
  if (scheme_of(config.format).has_fused_layers()) {
    for (std::vector<std::size_t>& tensors : find_fused(model)) {
      if (auto alike = check_fused(model, plan.layers_, tensors); !alike) return fail_at(path, alike.error());
      if (plan[tensors.front()].is_quantized()) plan.fused_.push_back(std::move(tensors));
    }
  }
  std::vector<unsigned> bits;
  for (const LayerPlan& layer : plan.layers_) bits.push_back(layer.bits);
  return plan.with_bits(bits);
}

Plan Plan::with_bits(std::span<const unsigned> bits) const {
  Plan changed = *this;
  for (std::size_t i = 0; i < bits.size(); ++i) changed.layers_[i].bits = bits[i];
  for (const std::vector<std::size_t>& tensors : fused_) {
    unsigned most = 0;
    for (const std::size_t i : tensors) most = std::max(most, bits[i]);
    for (const std::size_t i : tensors) changed.layers_[i].bits = most;
  }
  return changed;
}

Plan Plan::with_whole_scales(std::span<const float> scales) const {
  Plan changed = *this;
  for (std::size_t i = 0; i < scales.size(); ++i) changed.layers_[i].whole_scale = scales[i];
  return changed;
}

Plan Plan::with_column_scales(std::vector<std::vector<float>> scales) const {
  Plan changed = *this;
  for (std::size_t i = 0; i < scales.size(); ++i) changed.layers_[i].restore = std::move(scales[i]);
  return changed;
}

const WritableScheme& scheme_of(QuantizeFormat format) {
  switch (format) {
    case QuantizeFormat::kMlx: return mlx_scheme();
    case QuantizeFormat::kCompressedTensors: return writable_compressed_tensors();
    case QuantizeFormat::kHfFp8: return writable_fp8();
    case QuantizeFormat::kParquet: break;
  }
  return parquet_scheme();
}

WeightLayout layout_of(const WritableScheme& scheme, const TensorInfo& tensor, const LayerPlan& plan) {
  const FloatType* const floats = float_type(plan.type);
  return {.name = std::string(tensor.name),
          .dtype = tensor.dtype,
          .shape = {tensor.shape.begin(), tensor.shape.end()},
          .rows = plan.rows,
          .columns = plan.columns,
          .bits = plan.bits,
          .group_size = plan.group_size,
          .affine = floats == nullptr ? scheme.affine(plan.is_asymmetric) : Affine::kScale,
          .parameters = floats != nullptr && floats->scales ? *floats->scales : scheme.parameter_dtype(tensor.dtype),
          .type = plan.type,
          .strategy = plan.strategy,
          .power_rule = scheme.power_rule(),
          .is_aligned = scheme.is_aligned(),
          .whole_scale = plan.whole_scale,
          .restore = plan.restore};
}

}  // namespace ballast
