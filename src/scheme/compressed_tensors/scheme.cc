#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "scheme/compressed_tensors/config.h"
#include "scheme/compressed_tensors/match.h"
#include "scheme/compressed_tensors/module.h"
#include "scheme/compressed_tensors/zero_points.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "compressed-tensors";

// Parameters of a module's activations.
constexpr std::array<std::string_view, 6> kActivations{"input_scale",  "input_zero_point",  "input_global_scale",
                                                       "output_scale", "output_zero_point", "output_global_scale"};
// Parameters of attention, for queries and the KV cache.
constexpr std::array<std::string_view, 9> kAttention{"q_scale",        "k_scale",        "v_scale",
                                                     "q_zero_point",   "k_zero_point",   "v_zero_point",
                                                     "q_global_scale", "k_global_scale", "v_global_scale"};
// Parameters of a weight.
constexpr std::array<std::string_view, 5> kParameters{"weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape",
                                                      "weight_global_scale"};

bool has_any_leaf(std::string_view name, std::span<const std::string_view> leaves) {
  return std::ranges::any_of(leaves, [&](std::string_view leaf) { return has_leaf(name, leaf); });
}

std::string_view without_leaf(std::string_view name) { return name.substr(0, name.rfind('.') + 1); }

std::unique_ptr<const Codes> make_codes(const CtModule& module, const CtLayout& layout) {
  const TensorInfo& tensor = *module.codes;
  const std::uint64_t columns = module.columns();
  switch (module.kind) {
    case CtCodes::kPacked:
      return packed_codes(tensor, {.columns = columns,
                                   .row_bytes = tensor.shape.back() * sizeof(std::uint32_t),
                                   .bits = layout.bits,
                                   .per_word = layout.per_word,
                                   .offset = 1U << (layout.bits - 1)});
    case CtCodes::kNvfp4:
    case CtCodes::kMxfp4: return nibble_codes(tensor, columns, tensor.shape.back(), Nibbles::kLowFirst, kE2M1);
    case CtCodes::kI8:
    case CtCodes::kF8:
    case CtCodes::kMxfp8: break;
  }
  return element_codes(tensor, tensor.dtype, columns);
}

std::unique_ptr<const RowDecoder> make_decoder(const CtModule& module, const CtLayout& layout) {
  const TensorInfo& scale = *module.scale;
  const std::uint64_t groups = ceil_div(module.columns(), layout.group_columns);
  ParameterTable table{.tensor = &scale,
                       .dtype = scale.dtype == DType::kU8 ? DType::kF8E8M0 : scale.dtype,
                       .groups = groups,
                       .block_rows = layout.is_shared ? module.matrices() * module.rows() : layout.group_rows,
                       .matrix_rows = layout.is_shared ? 0 : module.rows(),
                       .factor = module.divisor,
                       .divides = true,
                       .zero = module.kind == CtCodes::kNvfp4 ? ZeroScale::kAllowed : ZeroScale::kDefect};  // E4M3 underflows
  Grouped grouped{.columns = module.columns(),
                  .group_size = layout.group_columns,
                  .codes = make_codes(module, layout),
                  .scales = parameter_table(table),
                  .zeros = nullptr,
                  .group_index = module.group_index,
                  .column_factors = nullptr};
  if (module.zeros != nullptr && module.kind == CtCodes::kPacked) {
    grouped.zeros = packed_zero_points({.tensor = module.zeros,
                                        .groups = groups,
                                        .matrix_rows = module.rows(),
                                        .words = module.zeros->shape[module.zeros->shape.size() - 2],
                                        .bits = layout.bits,
                                        .per_word = layout.per_word});
  } else if (module.zeros != nullptr) {
    table.tensor = module.zeros;
    table.dtype = module.zeros->dtype;
    grouped.zeros = byte_zero_points(table, layout.bits);
  }
  return grouped_decoder(std::move(grouped));
}

class Finder {
 public:
  Finder(const Model& model, const CtConfig& config) : model_(model), config_(config), dtype_(config_dtype(model)) {}

  Result<Layers> run() {
    expect_shapes();
    for (const TensorInfo& tensor : model_.tensors()) {
      if (has_leaf(tensor.name, kCtPacked)) TRY(add(tensor));
      if (has_leaf(tensor.name, kCtWeight)) TRY(visit_weight(tensor));
    }
    TRY(add_others());
    return std::move(found_);
  }

 private:
  // So that a server is not asked for each of them.
  void expect_shapes() const {
    std::vector<TensorInfo> shapes;
    std::ranges::copy_if(model_.tensors(), std::back_inserter(shapes),
                         [](const TensorInfo& tensor) { return has_leaf(tensor.name, "weight_shape"); });
    ModelAccess::expect(model_, shapes);
  }

  // A tensor named `weight` has codes or is a plain weight, which may have scales only before it is quantized.
  Result<void> visit_weight(const TensorInfo& tensor) {
    const std::string scale = std::string(without_leaf(tensor.name)) + "weight_scale";
    const bool is_float = info(tensor.dtype).kind == NumberKind::kFloat;
    const bool is_wide = bits(tensor.dtype) >= 16;
    if (model_.has(scale)) {
      if (is_float && is_wide && !config_.is_compressed) return {};
      return add(tensor);
    }
    const bool has_codes = tensor.dtype == DType::kI8 || (is_float && !is_wide);
    if (!has_codes || tensor.shape.size() < 2) return {};
    return fail_tensor(model_, tensor, Errc::kCorrupt, "is {} without scales: {} is missing", name(tensor.dtype), quote(scale));
  }

  Result<void> add(const TensorInfo& codes) {
    const CtModule module = TRY(find_module(model_, codes));
    const CtLayout layout = TRY(match_module(model_, module, config_));
    Layer layer;
    layer.name = std::string(without_leaf(codes.name)) + "weight";
    layer.dtype = dtype_.value_or(bits(module.scale->dtype) >= 16 ? module.scale->dtype : DType::kBF16);
    layer.shape = module.shape;
    layer.rows = module.matrices() * module.rows();
    layer.storage.mode = format_name(module.kind);
    layer.storage.bits = layout.bits;
    layer.storage.group_size = static_cast<unsigned>(std::min(layout.group_columns, module.columns()));
    for (const TensorInfo* const part :
         {module.codes, module.scale, module.divisor, module.zeros, module.group_index, module.shape_tensor}) {
      if (part != nullptr) layer.parts.push_back(part);
    }
    for (const std::string_view leaf : kActivations) {
      const TensorInfo* const part = model_.find(std::string(without_leaf(codes.name)).append(leaf));
      if (part != nullptr) layer.parts.push_back(part);
    }
    layer.decoder = make_decoder(module, layout);
    claimed_.insert(layer.parts.begin(), layer.parts.end());
    found_.layers.push_back(std::move(layer));
    return {};
  }

  Result<void> add_others() {
    for (const TensorInfo& tensor : model_.tensors()) {
      if (claimed_.contains(&tensor)) continue;
      if (has_any_leaf(tensor.name, kActivations) || has_any_leaf(tensor.name, kAttention)) {
        found_.dropped.push_back(&tensor);
      } else if (has_any_leaf(tensor.name, kParameters)) {
        const std::string weight = std::string(without_leaf(tensor.name)).append(kCtWeight);
        const bool is_dense = !config_.is_compressed && model_.has(weight);
        if (!is_dense) return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(weight));
        found_.dropped.push_back(&tensor);
      }
    }
    return {};
  }

  const Model& model_;
  const CtConfig& config_;
  std::optional<DType> dtype_;
  std::set<const TensorInfo*> claimed_;
  Layers found_;
};

class CompressedTensorsScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    if (declared.empty()) return refuse_lone_file(model);
    if (declared.front().method != kName) return std::nullopt;
    const CtConfig config = TRY(CtConfig::parse(declared.front()));
    Layers found = TRY(Finder(model, config).run());
    const bool has_weights = std::ranges::any_of(config.groups, [](const CtGroup& group) { return group.weights.has_value(); });
    if (found.layers.empty() && has_weights && config.is_compressed) {
      return fail(Errc::kCorrupt,
                  "{}: {} says that weights are compressed, but none is; remove the section if the weights are not quantized",
                  escape(model.path()), config.place);
    }
    return found;
  }

 private:
  static Result<std::optional<Layers>> refuse_lone_file(const Model& model) {
    for (const TensorInfo& tensor : model.tensors()) {
      if (!has_leaf(tensor.name, kCtPacked)) continue;
      return fail_tensor(model, tensor, Errc::kUnsupported,
                         "is quantized by {}, but there is no quantization_config that tells how; open the directory with its "
                         "config.json",
                         kName);
    }
    return std::nullopt;
  }
};

}  // namespace

const LayerScheme& compressed_tensors_scheme() {
  static const CompressedTensorsScheme scheme;
  return scheme;
}

}  // namespace ballast
