#include "scheme/modelopt/layers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/grouped_decoder.h"
#include "scheme/modelopt/row_pairs.h"

namespace ballast {
namespace {

// Scales of the KV cache and of outputs.
constexpr std::array<std::string_view, 5> kDropped{".k_scale", ".v_scale", ".output_scale", ".k_proj.k_bias", ".v_proj.v_bias"};

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_f8(DType dtype) { return info(dtype).kind == NumberKind::kFloat && bits(dtype) == 8; }

constexpr std::string_view kLeaf = "weight";

// Experts in one tensor have no module of their own: experts.gate_up_proj_weight_scale.
bool names_module(std::string_view weight) { return weight == kLeaf || weight.ends_with(".weight"); }

// What the names of the weight's other tensors begin with.
std::string prefix_of(std::string_view weight) {
  return names_module(weight) ? std::string(weight.substr(0, weight.size() - kLeaf.size())) : std::string(weight) + "_";
}

// One weight with its scales.
class LayerMaker {
 public:
  LayerMaker(const Model& model, const ModelOptConfig& config, const TensorInfo& weight)
      : model_(model),
        config_(config),
        weight_(weight),
        is_module_(names_module(weight.name)),
        prefix_(prefix_of(weight.name)),
        module_(prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1)),
        settings_(config.settings_of(module_)),
        scale_(find("weight_scale")) {}

  bool has_scale() const { return scale_ != nullptr; }
  bool is_module() const { return is_module_; }
  std::string scale_name() const { return prefix_ + "weight_scale"; }

  Result<Layer> make() {
    TRY(check_excluded());
    if (weight_.shape.size() != 2 && weight_.shape.size() != 3) {
      return fail_tensor(model_, weight_, Errc::kUnsupported, "shape is {}, expected a matrix or a stack of matrices",
                         to_string(weight_.shape));
    }
    if (weight_.elements() == 0) return fail_tensor(model_, weight_, Errc::kCorrupt, "has scales, but is empty");
    for (const std::string_view leaf : {"svdquant_lora_a", "svdquant_lora_b"}) {
      if (const TensorInfo* const part = find(leaf)) {
        return fail_tensor(model_, *part, Errc::kUnsupported, "NVFP4_SVD is not supported");
      }
    }
    codes_ = settings_.algorithm != nullptr ? settings_.algorithm->codes : guess();
    TRY(check_dtypes());
    TRY(set_shape());
    TRY(check_scale());
    TRY(find_factors());
    return layer();
  }

  void set_dtype(std::optional<DType> dtype) { dtype_ = dtype; }

 private:
  const TensorInfo* find(std::string_view leaf) const { return model_.find(prefix_ + std::string(leaf)); }

  std::uint64_t matrices() const { return shape_.size() == 3 ? shape_.front() : 1; }
  std::uint64_t rows() const { return shape_[shape_.size() - 2]; }
  std::uint64_t columns() const { return shape_.back(); }

  Result<void> check_excluded() const {
    const std::string_view excluding = config_.excluding(module_);
    if (excluding.empty()) return {};
    return fail_tensor(model_, weight_, Errc::kCorrupt, "is quantized as {}, but {} excludes {}", name(weight_.dtype),
                       config_.place, quote(excluding));
  }

  // For modules that the config does not list.
  ModelOptCodes guess() const {
    const bool has_exponents = scale_->dtype == DType::kU8 || scale_->dtype == DType::kF8E8M0;
    if (weight_.dtype == DType::kU8) return is_f8(scale_->dtype) ? ModelOptCodes::kNvfp4 : ModelOptCodes::kAwq;
    if (has_exponents) return ModelOptCodes::kMxfp8;
    const std::uint64_t matrices = weight_.shape.size() == 3 ? weight_.shape.front() : 1;
    if (scale_->elements() == 1 || scale_->elements() == matrices) return ModelOptCodes::kTensor;
    const bool is_channel = scale_->elements() == weight_.elements() / weight_.shape.back();
    return is_channel ? ModelOptCodes::kChannel : ModelOptCodes::kBlock;
  }

  std::string_view algorithm() const {
    if (settings_.algorithm != nullptr) return settings_.algorithm->name;
    return std::ranges::find(modelopt_algorithms(), codes_, &ModelOptAlgorithm::codes)->name;
  }

  Result<void> check_dtypes() const {
    const bool is_nibbles = codes_ == ModelOptCodes::kNvfp4 || codes_ == ModelOptCodes::kAwq;
    const DType expected = is_nibbles ? DType::kU8 : DType::kF8E4M3;
    if (weight_.dtype != expected) {
      return fail_tensor(model_, weight_, Errc::kCorrupt, "dtype is {}, expected {}: {}: quant_algo is {}", name(weight_.dtype),
                         name(expected), config_.place, algorithm());
    }
    switch (codes_) {
      case ModelOptCodes::kNvfp4: return check_dtype(model_, *scale_, {DType::kF8E4M3});
      case ModelOptCodes::kMxfp8: return check_dtype(model_, *scale_, {DType::kU8, DType::kF8E8M0});
      case ModelOptCodes::kTensor:
      case ModelOptCodes::kChannel:
      case ModelOptCodes::kBlock:
      case ModelOptCodes::kAwq: break;
    }
    return check_dtype(model_, *scale_, {DType::kF32, DType::kBF16, DType::kF16});
  }

  // The shape of the decoded weight, and the rows and columns that share a scale.
  Result<void> set_shape() {
    shape_.assign(weight_.shape.begin(), weight_.shape.end());
    switch (codes_) {
      case ModelOptCodes::kTensor: group_rows_ = rows(), group_columns_ = columns(); break;
      case ModelOptCodes::kChannel: group_rows_ = 1, group_columns_ = columns(); break;
      case ModelOptCodes::kBlock: group_rows_ = group_columns_ = group_size(128); break;
      case ModelOptCodes::kMxfp8: group_rows_ = 1, group_columns_ = group_size(32); break;
      case ModelOptCodes::kNvfp4: set_nvfp4_shape(); break;
      case ModelOptCodes::kAwq: {
        shape_[shape_.size() - 2] *= 2;
        group_rows_ = 1;
        const std::uint64_t groups = scale_->shape.empty() ? 0 : scale_->shape.back();
        group_columns_ = group_size(groups == 0 ? columns() : ceil_div(columns(), groups));
        break;
      }
    }
    if (codes_ == ModelOptCodes::kTensor || codes_ == ModelOptCodes::kChannel || codes_ == ModelOptCodes::kBlock) return {};
    const bool is_whole = is_transposed_ ? rows() % group_rows_ == 0 : columns() % group_columns_ == 0;
    if (is_whole) return {};
    return fail_tensor(model_, weight_, Errc::kUnsupported, "{} columns are not a multiple of {}, the group size", columns(),
                       group_columns_);
  }

  std::uint64_t group_size(std::uint64_t usual) const { return settings_.group_size != 0 ? settings_.group_size : usual; }

  // Experts of some models are stored [experts, in, out], with pairs of codes and groups down the columns.
  void set_nvfp4_shape() {
    const std::uint64_t size = group_size(16);
    const Shape scales = scale_->shape;
    if (shape_.size() == 3 && scales.size() == 3 && !is_module_ && scales[2] == shape_[2] &&
        scales[1] == ceil_div(shape_[1] * 2, size)) {
      is_transposed_ = true;
      shape_[1] *= 2;
      group_rows_ = size;
      group_columns_ = 1;
      return;
    }
    shape_.back() *= 2;
    group_rows_ = 1;
    group_columns_ = size;
  }

  Result<void> check_scale() {
    const std::uint64_t row_blocks = ceil_div(rows(), group_rows_);
    const std::uint64_t groups = ceil_div(columns(), group_columns_);
    std::vector<std::uint64_t> expected(shape_.begin(), shape_.end() - 2);
    const auto is = [&](std::initializer_list<std::uint64_t> last) {
      auto whole = expected;
      whole.insert(whole.end(), last);
      return std::ranges::equal(scale_->shape, whole);
    };
    if (codes_ == ModelOptCodes::kTensor) {
      is_shared_ = scale_->elements() == 1;
      if (is_shared_ || (shape_.size() == 3 && (is({}) || is({1}) || is({1, 1})))) return {};
      expected.clear();
    } else if (codes_ == ModelOptCodes::kChannel) {
      if (is({rows(), 1})) return {};
      expected.push_back(rows());
    } else if (codes_ == ModelOptCodes::kBlock) {
      if (is({row_blocks, groups})) return {};
      expected.insert(expected.end(), {row_blocks, 1, groups, 1});
    } else {
      expected.insert(expected.end(), {row_blocks, groups});
    }
    return check_shape(model_, *scale_, expected,
                       fmt::format("{}: quant_algo {} of a weight {}", config_.place, algorithm(), to_string(shape_)));
  }

  Result<void> find_factors() {
    if (codes_ == ModelOptCodes::kNvfp4) {
      factor_ = find("weight_scale_2");
      if (factor_ == nullptr) {
        return fail_tensor(model_, weight_, Errc::kCorrupt, "{} is missing", quote(prefix_ + "weight_scale_2"));
      }
      TRY(check_dtype(model_, *factor_, {DType::kF32}));
      if (factor_->elements() != 1 && factor_->elements() != matrices()) {
        return fail_tensor(model_, *factor_, Errc::kCorrupt, "shape is {}, expected []", to_string(factor_->shape));
      }
    }
    column_factors_ = find("pre_quant_scale");
    if (column_factors_ == nullptr) return {};
    if (is_transposed_)
      return fail_tensor(model_, *column_factors_, Errc::kUnsupported, "is not supported for transposed experts");
    TRY(check_dtype(model_, *column_factors_, {DType::kF32, DType::kBF16, DType::kF16}));
    return check_shape(model_, *column_factors_, {columns()}, "one for each column");
  }

  std::unique_ptr<const Codes> codes() const {
    if (codes_ == ModelOptCodes::kAwq) return row_pair_codes(weight_, columns(), kInt4);
    if (codes_ != ModelOptCodes::kNvfp4) return element_codes(weight_, weight_.dtype, columns());
    if (is_transposed_) return row_pair_codes(weight_, columns(), kE2M1);
    return nibble_codes(weight_, columns(), columns() / 2, Nibbles::kLowFirst, kE2M1);
  }

  Layer layer() const {
    Layer layer;
    layer.name = weight_.name;
    const bool tells = scale_->dtype == DType::kBF16 || scale_->dtype == DType::kF16;
    layer.dtype = dtype_.value_or(tells ? scale_->dtype : DType::kBF16);
    layer.shape = shape_;
    layer.rows = matrices() * rows();
    layer.storage.mode = algorithm();
    layer.storage.bits = weight_.dtype == DType::kU8 ? 4 : 8;
    layer.storage.group_size =
        static_cast<unsigned>(std::min(is_transposed_ ? group_rows_ : group_columns_, std::max(rows(), columns())));
    for (const TensorInfo* const part : {&weight_, scale_, factor_, column_factors_, find("input_scale")}) {
      if (part != nullptr) layer.parts.push_back(part);
    }
    // E4M3 underflows in blocks of tiny values.
    const ZeroScale zero = codes_ == ModelOptCodes::kNvfp4 ? ZeroScale::kAllowed : ZeroScale::kDefect;
    layer.decoder =
        grouped_decoder({.columns = columns(),
                         .group_size = group_columns_,
                         .codes = codes(),
                         .scales = parameter_table({.tensor = scale_,
                                                    .dtype = scale_->dtype == DType::kU8 ? DType::kF8E8M0 : scale_->dtype,
                                                    .groups = ceil_div(columns(), group_columns_),
                                                    .block_rows = is_shared_ ? layer.rows : group_rows_,
                                                    .matrix_rows = is_shared_ ? 0 : rows(),
                                                    .factor = factor_,
                                                    .zero = zero}),
                         .zeros = nullptr,
                         .group_index = nullptr,
                         .column_factors = column_factors_});
    return layer;
  }

  const Model& model_;
  const ModelOptConfig& config_;
  const TensorInfo& weight_;
  std::optional<DType> dtype_;
  bool is_module_;
  std::string prefix_;  // of the other tensors
  std::string module_;
  ModelOptSettings settings_;
  const TensorInfo* scale_;
  const TensorInfo* factor_ = nullptr;
  const TensorInfo* column_factors_ = nullptr;
  ModelOptCodes codes_ = ModelOptCodes::kTensor;
  std::vector<std::uint64_t> shape_;  // decoded
  std::uint64_t group_rows_ = 1;
  std::uint64_t group_columns_ = 1;
  bool is_transposed_ = false;
  bool is_shared_ = false;  // all matrices have one scale
};

}  // namespace

Result<Layers> find_modelopt_layers(const Model& model, const ModelOptConfig& config) {
  Layers found;
  const std::optional<DType> dtype = config_dtype(model);
  for (const TensorInfo& tensor : model.tensors()) {
    if (ends_with_any(tensor.name, kDropped)) found.dropped.push_back(&tensor);
    const bool may_be_codes = is_f8(tensor.dtype) || tensor.dtype == DType::kU8;
    const bool is_scale = tensor.name.ends_with("_scale") || tensor.name.ends_with("_scale_2");
    if (is_scale || tensor.shape.size() < 2) continue;
    LayerMaker maker(model, config, tensor);
    if (maker.has_scale() && (may_be_codes || maker.is_module())) {
      maker.set_dtype(dtype);
      found.layers.push_back(TRY(maker.make()));
    } else if (may_be_codes && maker.is_module() && config.quantizes_weights) {
      return fail_tensor(model, tensor, Errc::kCorrupt, "is {} without scales: {} is missing", name(tensor.dtype),
                         quote(maker.scale_name()));
    }
  }
  std::set<const TensorInfo*> claimed(found.dropped.begin(), found.dropped.end());
  for (const Layer& layer : found.layers) claimed.insert(layer.parts.begin(), layer.parts.end());
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name.ends_with("input_scale") && !claimed.contains(&tensor)) found.dropped.push_back(&tensor);
  }
  return found;
}

}  // namespace ballast
