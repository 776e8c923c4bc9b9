#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/compressed_tensors/section.h"
#include "scheme/layer_reader.h"
#include "scheme/linear_layers.h"
#include "scheme/mlx/section.h"
#include "scheme/tensors_scheme.h"

namespace ballast {
namespace {

constexpr std::uint64_t kBitsOfWord = 32;

class WritableCompressedTensors final : public TensorsScheme {
 public:
  std::string_view name() const override { return compressed_tensors_scheme().name(); }
  Result<std::unique_ptr<WeightsReader>> open(Model& model, std::span<const Declared> declared) const override {
    return compressed_tensors_scheme().open(model, declared);
  }

  std::optional<Matrix> matrix_of(const TensorInfo& tensor) const override { return linear_in_block(tensor); }

  Result<void> check_groups(const TensorInfo& tensor, const Matrix& matrix, unsigned group_size) const override {
    if (matrix.columns % group_size == 0) return {};
    constexpr std::array<unsigned, 2> kSmaller{64, 32};
    const auto* const fits = std::ranges::find_if(kSmaller, [&](unsigned size) { return matrix.columns % size == 0; });
    return fail(
        Errc::kUnsupported,
        "tensor {} has {} columns, not a multiple of group_size {}, as compressed-tensors requires; {}leave it unquantized "
        "with sensitive_layer_names",
        quote(tensor.name), matrix.columns, group_size,
        fits == kSmaller.end() ? "" : fmt::format("use group_size {}, or ", *fits));
  }

  Affine affine(bool is_asymmetric) const override { return is_asymmetric ? Affine::kScaleCode : Affine::kScaleMiddle; }
  DType parameter_dtype(DType weights) const override { return mlx_parameter_dtype(weights); }
  PowerRule power_rule() const override { return PowerRule::kClipsQuarter; }
  bool is_aligned() const override { return true; }
  bool has_fused_layers() const override { return true; }

  std::vector<StoredTensor> stored_tensors(const WeightLayout& weight) const override {
    const RowFormat format = weight.format();
    std::vector<StoredTensor> stored;
    const auto add = [&](StoredPart part, std::string_view suffix, DType dtype, std::vector<std::uint64_t> shape) {
      stored.push_back(
          {.part = part, .spec = {.name = fmt::format("{}{}", weight.name, suffix), .dtype = dtype, .shape = std::move(shape)}});
    };
    const std::vector<std::uint64_t> scales =
        weight.strategy == Strategy::kTensor
            ? std::vector<std::uint64_t>{1}
            : std::vector<std::uint64_t>{ceil_div(weight.rows, format.band_rows), format.groups()};
    switch (weight.type) {
      case QuantizeType::kInt:
        add(StoredPart::kCodes, "_packed", DType::kI32, {weight.rows, words(weight.columns, weight.bits)});
        add(StoredPart::kScales, "_scale", format.parameters, scales);
        add(StoredPart::kShape, "_shape", DType::kI64, {2});
        if (format.affine == Affine::kScaleCode) {
          add(StoredPart::kZeroPoints, "_zero_point", DType::kI32, {words(weight.rows, weight.bits), format.groups()});
        }
        break;
      case QuantizeType::kFp8:
        add(StoredPart::kCodes, "", DType::kF8E4M3, weight.shape);
        add(StoredPart::kScales, "_scale", format.parameters, scales);
        break;
      case QuantizeType::kMxfp8:
        add(StoredPart::kCodes, "", DType::kF8E4M3, weight.shape);
        add(StoredPart::kScales, "_scale", DType::kU8, scales);
        break;
      case QuantizeType::kMxfp4:
        add(StoredPart::kCodes, "_packed", DType::kU8, {weight.rows, format.packed_bytes()});
        add(StoredPart::kScales, "_scale", DType::kU8, scales);
        break;
      case QuantizeType::kNvfp4:
        add(StoredPart::kCodes, "_packed", DType::kU8, {weight.rows, format.packed_bytes()});
        add(StoredPart::kScales, "_scale", DType::kF8E4M3, scales);
        add(StoredPart::kDivisor, "_global_scale", DType::kF32, {1});
        break;
    }
    return stored;
  }

  std::string_view metadata_format() const override { return "pt"; }

  Result<std::string> with_section(const std::string& config, const OutputPlan& plan) const override {
    const std::array member{std::pair<std::string, std::string>("quantization_config", compressed_tensors_section(plan))};
    return with_members(with_quantization(config, {}), member);
  }

  std::vector<std::string> warnings(std::span<const WeightLayout> weights) const override {
    const auto is_for_others = [](const WeightLayout& weight) {
      return weight.is_quantized() && weight.affine == Affine::kScaleCode && weight.bits != 4 && weight.bits != 8;
    };
    const auto found = std::ranges::find_if(weights, is_for_others);
    if (found == weights.end()) return describe_blocks_that_cross(weights);
    return {fmt::format("vLLM loads zero points of 4 and 8 bits only; tensor {} has {}", quote(found->name), found->bits)};
  }

 private:
  static std::uint64_t words(std::uint64_t codes, unsigned bits) { return ceil_div(codes * bits, kBitsOfWord); }
};

}  // namespace

const WritableScheme& writable_compressed_tensors() {
  static const WritableCompressedTensors scheme;
  return scheme;
}

}  // namespace ballast
