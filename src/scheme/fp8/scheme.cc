#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "fp8";

// Names of other tensors of a module, made from the name of its weight.
struct SiblingName {
  std::string_view weight;
  std::string_view other;
};

constexpr SiblingName kPlainScale{.weight = ".weight", .other = ".scale"};  // DeepSeek-V4; plain models use the name, too
constexpr std::array kScaleNames{
    SiblingName{.weight = "", .other = "_scale_inv"},
    SiblingName{.weight = "", .other = "_scale"},
    SiblingName{.weight = "weight", .other = "qscale_weight"},  // Mistral
    kPlainScale,
};

// Scales of activations and of the KV cache, which do not change the value of a weight.
constexpr std::array kActivationScales{
    SiblingName{.weight = "weight", .other = "input_scale"},      SiblingName{.weight = "weight", .other = "input_scale_ub"},
    SiblingName{.weight = "weight", .other = "activation_scale"}, SiblingName{.weight = "weight", .other = "qscale_act"},
    SiblingName{.weight = "", .other = "_input_scale"},           SiblingName{.weight = "", .other = "_activation_scale"},
};
constexpr std::array<std::string_view, 3> kCacheScales{".k_scale", ".v_scale", ".kv_scale"};

bool is_f8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }
bool is_exponent(DType dtype) { return dtype == DType::kF8E8M0 || dtype == DType::kU8; }

std::uint64_t blocks(std::uint64_t length, std::uint64_t size) { return length / size + (length % size != 0 ? 1 : 0); }

struct Block {
  std::uint64_t rows;
  std::uint64_t columns;
};
constexpr Block kUsualBlock{.rows = 128, .columns = 128};
constexpr Block kMicroscaling{.rows = 1, .columns = 32};

// What the config says.
struct Settings {
  bool is_declared = false;
  std::optional<Block> block;
};

// A weight as matrices of the same size, one after the other.
struct Matrices {
  std::vector<std::uint64_t> stack;
  std::uint64_t rows;
  std::uint64_t columns;

  std::vector<std::uint64_t> blocks_of(const Block& block) const {
    std::vector<std::uint64_t> shape = stack;
    shape.insert(shape.end(), {blocks(rows, block.rows), blocks(columns, block.columns)});
    return shape;
  }
};

// How the scales of one weight are laid out: a matrix of blocks for each of the stacked matrices.
struct Scaling {
  std::string_view strategy;
  Block block;
};

class Fp8Finder {
 public:
  Fp8Finder(const Model& model, const Settings& settings)
      : model_(model), dtype_(config_dtype(model).value_or(DType::kBF16)), settings_(settings) {}

  Result<Layers> run() {
    for (const TensorInfo& tensor : model_.tensors()) {
      if (tensor.shape.size() < 2) continue;
      if (is_f8(tensor.dtype)) TRY(add_f8(tensor));
      if (const TensorInfo* const scale = scale_of_pairs(tensor)) TRY(add_pairs(tensor, *scale));
    }
    if (!found_.layers.empty() || settings_.is_declared) TRY(check_orphans());
    if (!found_.layers.empty()) TRY(check_scaled());
    if (!found_.layers.empty()) drop_cache_scales();
    return std::move(found_);
  }

 private:
  const TensorInfo* scale_of(const TensorInfo& weight) const {
    for (const SiblingName& name : kScaleNames) {
      const TensorInfo* const found = find_sibling(model_, weight.name, name.weight, name.other);
      if (found == nullptr) continue;
      if (settings_.is_declared) return found;
      // A model that was cast to F8 may have a scaled layer, whose `scale` was cast, too.
      const bool is_cast = found->dtype == weight.dtype || (name.other == kPlainScale.other && found->dtype != DType::kF8E8M0);
      if (!is_cast) return found;
    }
    return nullptr;
  }

  // The scale of DeepSeek-V4's experts: pairs of E2M1 codes, stored as I8.
  const TensorInfo* scale_of_pairs(const TensorInfo& weight) const {
    if (weight.dtype != DType::kI8 || weight.shape.size() != 2) return nullptr;
    const TensorInfo* const scale = find_sibling(model_, weight.name, kPlainScale.weight, kPlainScale.other);
    return scale != nullptr && scale->dtype == DType::kF8E8M0 ? scale : nullptr;
  }

  Result<void> add_f8(const TensorInfo& weight) {
    const TensorInfo* const scale = scale_of(weight);
    if (scale == nullptr) {
      if (!settings_.is_declared) return {};
      return fail_tensor(model_, weight, Errc::kCorrupt, "dtype is {}, but {} is missing", name(weight.dtype),
                         quote(std::string(weight.name) + "_scale_inv"));
    }
    if (weight.elements() == 0) return fail_tensor(model_, weight, Errc::kCorrupt, "has scales, but is empty");
    TRY(check_dtype(model_, *scale, {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8}));
    const Matrices matrices = matrices_of(weight, *scale);
    const Scaling scaling = TRY(scaling_of(weight, matrices, *scale));
    Layer layer = make_layer(weight, *scale, 8);
    layer.shape.assign(weight.shape.begin(), weight.shape.end());
    layer.rows = weight.elements() / matrices.columns;
    layer.storage.mode = scaling.strategy;
    layer.storage.group_size = static_cast<unsigned>(std::min(scaling.block.columns, matrices.columns));
    Grouped grouped{.columns = matrices.columns, .group_size = scaling.block.columns};
    grouped.codes = element_codes(weight, weight.dtype, matrices.columns);
    const bool is_shared = scale->elements() == 1;
    grouped.scales = parameter_table({.tensor = scale,
                                      .dtype = is_exponent(scale->dtype) ? DType::kF8E8M0 : scale->dtype,
                                      .groups = blocks(matrices.columns, scaling.block.columns),
                                      .block_rows = is_shared ? layer.rows : scaling.block.rows,
                                      .matrix_rows = is_shared ? 0 : matrices.rows});
    layer.decoder = grouped_decoder(std::move(grouped));
    found_.layers.push_back(std::move(layer));
    return {};
  }

  Result<void> add_pairs(const TensorInfo& weight, const TensorInfo& scale) {
    if (weight.elements() == 0) return fail_tensor(model_, weight, Errc::kCorrupt, "has scales, but is empty");
    const std::uint64_t rows = weight.shape[0];
    const std::uint64_t columns = weight.shape[1] * 2;
    const std::uint64_t groups = blocks(columns, kMicroscaling.columns);
    TRY(check_shape(
        model_, scale, {rows, groups},
        fmt::format("{} has {} rows and {} columns in groups of {}", quote(weight.name), rows, columns, kMicroscaling.columns)));
    Layer layer = make_layer(weight, scale, 4);
    layer.shape = {rows, columns};
    layer.rows = rows;
    layer.storage.mode = "mxfp4";
    layer.storage.group_size = kMicroscaling.columns;
    Grouped grouped{.columns = columns, .group_size = kMicroscaling.columns};
    grouped.codes = nibble_codes(weight, columns, weight.shape[1], Nibbles::kLowFirst, kE2M1);
    grouped.scales = parameter_table({.tensor = &scale, .dtype = DType::kF8E8M0, .groups = groups});
    layer.decoder = grouped_decoder(std::move(grouped));
    found_.layers.push_back(std::move(layer));
    return {};
  }

  Layer make_layer(const TensorInfo& weight, const TensorInfo& scale, unsigned bits) {
    Layer layer;
    layer.name = weight.name;
    layer.dtype = dtype_;
    layer.storage.bits = bits;
    layer.parts = {&weight, &scale};
    for (const SiblingName& name : kActivationScales) {
      if (const TensorInfo* const input = find_sibling(model_, weight.name, name.weight, name.other))
        found_.dropped.push_back(input);
    }
    return layer;
  }

  // Weights of more than three dimensions, such as those of convolutions, have one scale.
  static Matrices matrices_of(const TensorInfo& weight, const TensorInfo& scale) {
    const std::size_t dims = weight.shape.size();
    if (dims > 3 && scale.elements() == 1) {
      return {.stack = {}, .rows = weight.shape.front(), .columns = weight.elements() / weight.shape.front()};
    }
    return {
        .stack = {weight.shape.begin(), weight.shape.end() - 2}, .rows = weight.shape[dims - 2], .columns = weight.shape.back()};
  }

  // Declared blocks must fit; otherwise the shape of the scales decides.
  Result<Scaling> scaling_of(const TensorInfo& weight, const Matrices& matrices, const TensorInfo& scale) const {
    std::vector<std::uint64_t> shape(scale.shape.begin(), scale.shape.end());
    if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) shape = {shape[0], shape[2]};  // ModelOpt's FP8_PB_WO
    const Block block = settings_.block.value_or(kUsualBlock);
    if (shape == matrices.blocks_of(block)) return Scaling{.strategy = "block", .block = block};
    if (!settings_.block) {
      const Block whole{.rows = matrices.rows, .columns = matrices.columns};
      const Block row{.rows = 1, .columns = matrices.columns};
      const auto one_each = matrices.blocks_of(whole);
      const bool is_list = shape == matrices.stack && !shape.empty();
      if (scale.elements() == 1 || shape == one_each || is_list) return Scaling{.strategy = "tensor", .block = whole};
      if (is_exponent(scale.dtype) && shape == matrices.blocks_of(kMicroscaling)) {
        return Scaling{.strategy = "group", .block = kMicroscaling};
      }
      const bool is_column = matrices.stack.empty() && shape == std::vector{matrices.rows};
      if (shape == matrices.blocks_of(row) || is_column) return Scaling{.strategy = "channel", .block = row};
    }
    return fail_tensor(model_, scale, Errc::kCorrupt, "shape is {}, expected {}: {} is {} in blocks of {} x {}",
                       to_string(scale.shape), to_string(matrices.blocks_of(block)), quote(weight.name), to_string(weight.shape),
                       block.rows, block.columns);
  }

  // A matrix without a scale beside some with one: the scale may be in another shard.
  Result<void> check_scaled() const {
    std::set<const TensorInfo*> found;
    for (const Layer& layer : found_.layers) found.insert(layer.parts.begin(), layer.parts.end());
    for (const TensorInfo& tensor : model_.tensors()) {
      if (tensor.shape.size() < 2 || !is_f8(tensor.dtype) || found.contains(&tensor)) continue;
      return fail_tensor(model_, tensor, Errc::kUnsupported,
                         "is {} without a scale, but {} has one; if this is one of several shards, open their directory",
                         name(tensor.dtype), quote(found_.layers.front().name));
    }
    return {};
  }

  // Scales without a weight, or of a weight that is not quantized, contradict it.
  Result<void> check_orphans() const {
    constexpr std::array kNames{
        SiblingName{.weight = "", .other = "_scale_inv"},
        SiblingName{.weight = ".weight", .other = ".weight_scale"},
        SiblingName{.weight = ".weight", .other = ".qscale_weight"},
    };
    for (const TensorInfo& tensor : model_.tensors()) {
      const auto* const name = std::ranges::find_if(kNames, [&](const auto& n) { return tensor.name.ends_with(n.other); });
      if (name == kNames.end()) continue;
      const std::string weight = std::string(tensor.name.substr(0, tensor.name.size() - name->other.size())).append(name->weight);
      const TensorInfo* const found = model_.find(weight);
      if (found == nullptr) return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(weight));
      if (is_f8(found->dtype) && found->shape.size() >= 2) continue;
      return fail_tensor(model_, *found, Errc::kCorrupt, "dtype is {} and shape {}, but {} expects a matrix of F8_E4M3",
                         ballast::name(found->dtype), to_string(found->shape), quote(tensor.name));
    }
    return {};
  }

  void drop_cache_scales() {
    for (const TensorInfo& tensor : model_.tensors()) {
      const bool is_named =
          std::ranges::any_of(kCacheScales, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
      if (is_named && tensor.elements() == 1) found_.dropped.push_back(&tensor);
    }
  }

  const Model& model_;
  DType dtype_;
  Settings settings_;
  Layers found_;
};

Result<Settings> read_settings(const Declared& declared) {
  constexpr std::string_view kBlock = "weight_block_size";
  constexpr std::string_view kFormat = "qformat_weight";
  const Section section = TRY(Section::parse(declared));
  Settings settings{.is_declared = true, .block = std::nullopt};
  if (const auto format = TRY(section.text(kFormat)); format && *format != "fp8_e4m3") {
    return fail(Errc::kUnsupported, "{}: {} is {}, expected 'fp8_e4m3'", section.place(), kFormat, quote(*format));
  }
  const auto sizes = TRY(section.numbers(kBlock));
  if (!sizes) return settings;
  if (sizes->size() != 2 || std::ranges::any_of(*sizes, [](std::int64_t size) { return size < 1; })) {
    return section.wrong(kBlock, "two positive numbers");
  }
  settings.block = {.rows = static_cast<std::uint64_t>((*sizes)[0]), .columns = static_cast<std::uint64_t>((*sizes)[1])};
  return settings;
}

// F8 weights with scales: of Hugging Face, DeepSeek, Qwen, FBGEMM and Mistral.
class Fp8Scheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    constexpr std::array<std::string_view, 3> kMethods{"fp8", "fbgemm_fp8", "mxfp8"};
    Settings settings;
    if (!declared.empty()) {
      if (std::ranges::find(kMethods, declared.front().method) == kMethods.end()) return std::nullopt;
      settings = TRY(read_settings(declared.front()));
    }
    auto found = TRY(Fp8Finder(model, settings).run());
    if (!found.layers.empty()) return found;
    if (!settings.is_declared) return std::nullopt;
    return fail(Errc::kCorrupt, "{}: {} says '{}', but no tensor is F8; remove the section if the weights are not quantized",
                escape(model.path()), declared.front().place, escape(declared.front().method));
  }
};

}  // namespace

const LayerScheme& fp8_scheme() {
  static const Fp8Scheme scheme;
  return scheme;
}

}  // namespace ballast
