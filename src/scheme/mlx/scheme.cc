#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/layer_names.h"
#include "scheme/matrix.h"
#include "scheme/mlx/reader.h"
#include "scheme/mlx/section.h"
#include "scheme/tensors_scheme.h"

namespace ballast {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

class MlxScheme final : public TensorsScheme {
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

  Affine affine(bool) const override { return Affine::kScaleBias; }
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

  std::vector<StoredTensor> stored_tensors(const WeightLayout& weight) const override {
    const RowFormat format = weight.format();
    const bool has_biases = format.affine != Affine::kScale;
    std::vector<std::uint64_t> shape = weight.shape;
    const auto part = [&](StoredPart kind, std::string name, DType dtype, std::uint64_t columns) {
      shape.back() = columns;
      return StoredTensor{.part = kind, .spec = {.name = std::move(name), .dtype = dtype, .shape = shape}};
    };
    const std::string module(module_of(weight.name));
    const DType parameters = has_biases ? format.parameters : DType::kU8;
    std::vector<StoredTensor> stored{
        part(StoredPart::kCodes, weight.name, DType::kU32, format.packed_bytes() / sizeof(std::uint32_t)),
        part(StoredPart::kScales, module + ".scales", parameters, format.groups())};
    if (has_biases) stored.push_back(part(StoredPart::kBiases, module + ".biases", parameters, format.groups()));
    return stored;
  }

  std::string_view metadata_format() const override { return "mlx"; }

  Result<std::string> with_section(const std::string& config, const OutputPlan& plan) const override {
    const auto section = TRY(quantization_section(plan));
    std::vector<SideFileKind> sides;
    if (std::ranges::any_of(plan.weights, [](const WeightLayout& weight) { return weight.time_groups > 0; }))
      sides.push_back(kTimeAware);
    if (std::ranges::any_of(plan.weights, [](const WeightLayout& weight) { return !weight.restore.empty(); }))
      sides.push_back(kEqualization);
    return with_quantization(config, section, sides);
  }

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
