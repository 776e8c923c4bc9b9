#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "model/layer_names.h"
#include "scheme/matrix.h"
#include "scheme/mlx/reader.h"
#include "scheme/mlx/writer.h"
#include "scheme/scheme.h"

namespace ballast {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

class MlxSizes final : public SizeModel {
 public:
  bool is_exact() const override { return true; }

  Result<std::uint64_t> weight_bytes(const OutputPlan&, const WeightLayout& weight, const CodedBlock&) const override {
    return weight.rows * weight.stored_row_bytes();
  }

  Result<std::uint64_t> fixed_bytes(const OutputPlan& plan) const override {
    std::uint64_t bytes = TRY(mlx_file_bytes(plan));
    for (const WeightLayout& weight : plan.weights) {
      if (weight.is_quantized()) bytes -= weight.rows * weight.stored_row_bytes();
    }
    return bytes;
  }
};

class MlxScheme final : public WritableScheme {
 public:
  std::string_view name() const override { return "mlx"; }
  Result<std::unique_ptr<WeightsReader>> open(Model& model, std::span<const Declared> declared) const override {
    return open_mlx_reader(model, !declared.empty());
  }

  std::optional<Matrix> matrix_of(const TensorInfo& tensor) const override {
    if (!is_quantizable(tensor) || !is_layer(tensor)) return std::nullopt;
    return Matrix{.rows = product(tensor.shape.first(tensor.shape.size() - 1)), .columns = tensor.shape.back()};
  }

  Result<void> check_groups(const TensorInfo& tensor, const Matrix& matrix, unsigned group_size) const override {
    if (matrix.columns % group_size == 0) return {};
    constexpr std::array<unsigned, 2> kSmaller{64, 32};
    const auto fits = std::ranges::find_if(kSmaller, [&](unsigned size) { return matrix.columns % size == 0; });
    return fail(Errc::kUnsupported,
                "tensor {} has {} columns, not a multiple of group_size {}; {}leave it unquantized with sensitive_layer_names",
                quote(tensor.name), matrix.columns, group_size,
                fits == kSmaller.end() ? "" : fmt::format("use group_size {}, or ", *fits));
  }

  Affine affine() const override { return Affine::kScaleBias; }
  DType parameter_dtype(DType weights) const override { return mlx_parameter_dtype(weights); }

  // MLX groups tensors by their names, so names must not collide.
  Result<void> check_names(const std::string& model, std::span<const WeightLayout> weights) const override {
    const auto fail_weight = [&](const WeightLayout& weight, const std::string& message) {
      return fail(Errc::kUnsupported, "{}: tensor {}: {}", escape(model), quote(weight.name), message);
    };
    std::vector<std::string_view> names;
    for (const WeightLayout& weight : weights) names.push_back(weight.name);
    std::ranges::sort(names);
    for (const WeightLayout& weight : weights) {
      if (!weight.is_quantized()) {
        if (!weight.name.ends_with(".scales") && !weight.name.ends_with(".biases")) continue;
        return fail_weight(weight, "MLX would mistake it for part of a quantized tensor; rename it with convert");
      }
      constexpr std::array<std::string_view, 4> kSettings{"bits", "group_size", "mode", "per_tensor"};
      const bool is_weight = weight.name.ends_with(kWeightSuffix);
      const std::string base = weight.name.substr(0, weight.name.size() - (is_weight ? kWeightSuffix.size() : 0));
      if (std::ranges::find(kSettings, base) != kSettings.end()) {
        return fail_weight(weight,
                           "the config of MLX has a setting of that name; leave it unquantized with sensitive_layer_names, or "
                           "rename it with convert");
      }
      for (const std::string& needed : {base + ".scales", base + ".biases", is_weight ? base : base + ".weight"}) {
        if (!std::ranges::binary_search(names, needed)) continue;
        return fail_weight(weight, fmt::format("its name clashes with {} when quantized; leave it unquantized with "
                                               "sensitive_layer_names, or rename one",
                                               quote(needed)));
      }
    }
    return {};
  }

  Result<std::unique_ptr<SizeModel>> make_size_model() const override { return std::make_unique<MlxSizes>(); }

  Result<std::unique_ptr<QuantizedWriter>> create_writer(const std::string& directory, const OutputPlan& plan,
                                                         bool sync) const override {
    return create_mlx_writer(directory, plan, sync);
  }

  std::string finished_key(const std::string& directory) const override { return finished_mlx_key(directory); }
  std::string_view last_file() const override { return kIndexFile; }

 private:
  // Whether MLX can quantize the layer: linear, embedding, or experts in one tensor.
  static bool is_layer(const TensorInfo& tensor) {
    constexpr std::array<std::string_view, 3> kOthers{"norm", "conv", "bias"};
    const std::string_view layer = layer_of(tensor.name);
    const std::string_view module = layer.substr(layer.rfind('.') + 1);
    if (has_any(lowercase(module), kOthers)) return false;
    return tensor.shape.size() == 2 || (tensor.shape.size() == 3 && is_of_experts(tensor.name));
  }
};

}  // namespace

const WritableScheme& mlx_scheme() {
  static const MlxScheme scheme;
  return scheme;
}

}  // namespace ballast
