#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"
#include "scheme/scheme.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "fp8";

bool is_f8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

// The scales of a weight, by name: the weight's name with a suffix, or another tensor of the module.
struct ScaleName {
  std::string_view weight;
  std::string_view scale;
};
constexpr std::array kScaleNames{
    ScaleName{.weight = "", .scale = "_scale_inv"},
    ScaleName{.weight = "", .scale = "_scale"},
    ScaleName{.weight = "weight", .scale = "qscale_weight"},  // Mistral
    ScaleName{.weight = ".weight", .scale = ".scale"},        // DeepSeek-V4
};

// Scales of activations, which do not change the value of a weight.
constexpr std::array<ScaleName, 4> kActivationScales{
    ScaleName{.weight = "weight", .scale = "input_scale"},
    ScaleName{.weight = "weight", .scale = "activation_scale"},
    ScaleName{.weight = "weight", .scale = "qscale_act"},
    ScaleName{.weight = "", .scale = "_input_scale"},
};

const TensorInfo* find_first(const Model& model, std::string_view weight, std::span<const ScaleName> names) {
  for (const ScaleName& name : names) {
    if (const TensorInfo* const found = find_sibling(model, weight, name.weight, name.scale)) return found;
  }
  return nullptr;
}

std::uint64_t blocks(std::uint64_t length, std::uint64_t size) { return length / size + (length % size != 0 ? 1 : 0); }

struct Block {
  std::uint64_t rows;
  std::uint64_t columns;
};

// How the scales of one weight are laid out: a matrix of blocks for each of the stacked matrices.
struct Scaling {
  std::string_view strategy;
  Block block;
};

class Fp8Finder {
 public:
  Fp8Finder(const Model& model, std::optional<Block> declared, bool is_declared)
      : model_(model), dtype_(config_dtype(model).value_or(DType::kBF16)), declared_(declared), is_declared_(is_declared) {}

  Result<Layers> run() {
    for (const TensorInfo& tensor : model_.tensors()) {
      if (is_f8(tensor.dtype) && tensor.shape.size() >= 2) TRY(add(tensor));
    }
    TRY(check_orphans());
    return std::move(found_);
  }

 private:
  Result<void> add(const TensorInfo& weight) {
    const TensorInfo* const scale = find_first(model_, weight.name, kScaleNames);
    if (scale == nullptr) {
      if (!is_declared_) return {};
      return fail_tensor(model_, weight, Errc::kCorrupt, "is {} without scales: {} is missing", name(weight.dtype),
                         quote(std::string(weight.name) + "_scale_inv"));
    }
    if (weight.elements() == 0) return fail_tensor(model_, weight, Errc::kCorrupt, "has scales, but is empty");
    const DType scale_dtype = scale->dtype == DType::kU8 ? DType::kF8E8M0 : scale->dtype;
    TRY(check_dtype(model_, *scale, {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8}));
    const Scaling scaling = TRY(scaling_of(weight, *scale));
    const std::uint64_t columns = weight.shape.back();
    const std::uint64_t matrix_rows = weight.shape[weight.shape.size() - 2];
    Layer layer;
    layer.name = weight.name;
    layer.dtype = dtype_;
    layer.shape.assign(weight.shape.begin(), weight.shape.end());
    layer.rows = weight.elements() / columns;
    layer.storage.mode = scaling.strategy;
    layer.storage.bits = 8;
    layer.storage.group_size = static_cast<unsigned>(std::min(scaling.block.columns, columns));
    layer.parts = {&weight, scale};
    if (const TensorInfo* const input = find_first(model_, weight.name, kActivationScales)) layer.parts.push_back(input);
    const bool is_shared = scale->elements() == 1;
    layer.decoder = grouped_decoder(
        {.columns = columns,
         .group_size = scaling.block.columns,
         .codes = element_codes(weight, weight.dtype, columns),
         .scales = parameter_table({.tensor = scale,
                                    .dtype = scale_dtype,
                                    .groups = blocks(columns, scaling.block.columns),
                                    .block_rows = is_shared ? layer.rows : scaling.block.rows,
                                    .matrix_rows = is_shared ? 0 : matrix_rows})});
    found_.layers.push_back(std::move(layer));
    return {};
  }

  // The declared blocks win; otherwise the shape of the scales decides.
  Result<Scaling> scaling_of(const TensorInfo& weight, const TensorInfo& scale) const {
    const std::uint64_t rows = weight.shape[weight.shape.size() - 2];
    const std::uint64_t columns = weight.shape.back();
    if (scale.elements() == 1) return Scaling{.strategy = "tensor", .block = {.rows = rows, .columns = columns}};
    std::vector<std::uint64_t> shape(scale.shape.begin(), scale.shape.end());
    std::vector<std::uint64_t> expected(weight.shape.begin(), weight.shape.end() - 2);
    if (weight.shape.size() == 3 && expected.front() == scale.elements()) {
      return Scaling{.strategy = "tensor", .block = {.rows = rows, .columns = columns}};
    }
    const auto fits = [&](const Block& block) {
      auto all = expected;
      all.insert(all.end(), {blocks(rows, block.rows), blocks(columns, block.columns)});
      return shape == all;
    };
    if (scale.dtype == DType::kU8 || scale.dtype == DType::kF8E8M0) {
      constexpr Block kMicroscaling{.rows = 1, .columns = 32};
      if (fits(kMicroscaling)) return Scaling{.strategy = "group", .block = kMicroscaling};
    }
    constexpr Block kUsual{.rows = 128, .columns = 128};
    const Block block = declared_.value_or(kUsual);
    if (fits(block)) return Scaling{.strategy = "block", .block = block};
    const Block row{.rows = 1, .columns = columns};
    const bool is_per_row = fits(row) || (expected.empty() && shape == std::vector{rows});
    if (is_per_row && !declared_) return Scaling{.strategy = "channel", .block = row};
    expected.insert(expected.end(), {blocks(rows, block.rows), blocks(columns, block.columns)});
    return fail_tensor(model_, scale, Errc::kCorrupt, "shape is {}, expected {}: {} is {} in blocks of {} x {}",
                       to_string(scale.shape), to_string(expected), quote(weight.name), to_string(weight.shape), block.rows,
                       block.columns);
  }

  // Scales of a weight that is not F8 contradict it.
  Result<void> check_orphans() const {
    constexpr std::string_view kInverse = "_scale_inv";
    for (const TensorInfo& tensor : model_.tensors()) {
      if (!tensor.name.ends_with(kInverse)) continue;
      const std::string weight(tensor.name.substr(0, tensor.name.size() - kInverse.size()));
      const TensorInfo* const found = model_.find(weight);
      if (found == nullptr) return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(weight));
      if (!is_f8(found->dtype)) {
        return fail_tensor(model_, *found, Errc::kCorrupt, "dtype is {}, expected F8_E4M3: it has scales", name(found->dtype));
      }
    }
    return {};
  }

  const Model& model_;
  DType dtype_;
  std::optional<Block> declared_;
  bool is_declared_;
  Layers found_;
};

Result<std::optional<Block>> declared_block(const Section& section) {
  constexpr std::string_view kKey = "weight_block_size";
  const auto sizes = TRY(section.numbers(kKey));
  if (!sizes) return std::nullopt;
  if (sizes->size() != 2 || std::ranges::any_of(*sizes, [](std::int64_t size) { return size < 1; })) {
    return section.wrong(kKey, "two positive numbers");
  }
  return Block{.rows = static_cast<std::uint64_t>((*sizes)[0]), .columns = static_cast<std::uint64_t>((*sizes)[1])};
}

// F8 weights with scales: of Hugging Face, DeepSeek, Qwen, FBGEMM and Mistral.
class Fp8Scheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    constexpr std::array<std::string_view, 3> kMethods{"fp8", "fbgemm_fp8", "mxfp8"};
    std::optional<Block> block;
    const bool is_declared = !declared.empty() && std::ranges::find(kMethods, declared.front().method) != kMethods.end();
    if (!declared.empty() && !is_declared) return std::nullopt;
    if (is_declared) block = TRY(declared_block(TRY(Section::parse(declared.front()))));
    const auto has_dtype = [](const TensorInfo& tensor) { return is_f8(tensor.dtype) && tensor.shape.size() >= 2; };
    const auto first = std::ranges::find_if(model.tensors(), has_dtype);
    if (first == model.tensors().end()) {
      if (!is_declared) return std::nullopt;
      return fail(Errc::kCorrupt, "{}: {} says '{}', but no tensor is F8; remove the section if the weights are not quantized",
                  escape(model.path()), declared.front().place, escape(declared.front().method));
    }
    auto found = TRY(Fp8Finder(model, block, is_declared).run());
    if (found.layers.empty()) return std::nullopt;
    return found;
  }
};

}  // namespace

const LayerScheme& fp8_scheme() {
  static const Fp8Scheme scheme;
  return scheme;
}

}  // namespace ballast
