#include <array>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/fail.h"
#include "scheme/layer_reader.h"
#include "scheme/linear_layers.h"
#include "scheme/mlx/section.h"
#include "scheme/tensors_scheme.h"

namespace ballast {
namespace {

// As DeepSeek and Qwen publish FP8: a scale for each block of 128 × 128.
class WritableFp8 final : public TensorsScheme {
 public:
  std::string_view name() const override { return "hf-fp8"; }
  Result<std::unique_ptr<WeightsReader>> open(Model& model, std::span<const Declared> declared) const override {
    return fp8_scheme().open(model, declared);
  }

  std::optional<Matrix> matrix_of(const TensorInfo& tensor) const override { return linear_in_block(tensor); }
  Result<void> check_groups(const TensorInfo&, const Matrix&, unsigned) const override { return {}; }
  Affine affine(bool) const override { return Affine::kScale; }
  DType parameter_dtype(DType) const override { return DType::kF32; }
  bool is_aligned() const override { return true; }
  bool has_fused_layers() const override { return true; }

  std::vector<StoredTensor> stored_tensors(const WeightLayout& weight) const override {
    const RowFormat format = weight.format();
    return {{.part = StoredPart::kCodes, .spec = {.name = weight.name, .dtype = DType::kF8E4M3, .shape = weight.shape}},
            {.part = StoredPart::kScales,
             .spec = {.name = weight.name + "_scale_inv",
                      .dtype = DType::kF32,
                      .shape = {ceil_div(weight.rows, format.band_rows), format.groups()}}}};
  }

  std::string_view metadata_format() const override { return "pt"; }

  Result<std::string> with_section(const std::string& config, const OutputPlan& plan) const override {
    const std::string section =
        fmt::format(R"({{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [{0}, {0}], )"
                    R"("modules_to_not_convert": {1}}})",
                    kScaleBlock, json_list(unquantized_modules(plan.weights)));
    const std::array member{std::pair<std::string, std::string>("quantization_config", section)};
    return with_members(with_quantization(config, {}), member);
  }

  std::vector<std::string> warnings(std::span<const WeightLayout> weights) const override {
    return describe_blocks_that_cross(weights);
  }
};

}  // namespace

const WritableScheme& writable_fp8() {
  static const WritableFp8 scheme;
  return scheme;
}

}  // namespace ballast
