#include <algorithm>

#include "base/try.h"
#include "scheme/matrix.h"
#include "scheme/parquet/block.h"
#include "scheme/parquet/metadata.h"
#include "scheme/parquet/writer.h"
#include "scheme/scheme.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

class ParquetSizeModel final : public SizeModel {
 public:
  explicit ParquetSizeModel(const ParquetSizes& sizes) : sizes_(sizes) {}

  bool is_exact() const override { return false; }

  // Parameters are assumed to compress like those of the sample's second half: the first half includes the start of a page, which
  // small layers share.
  Result<std::uint64_t> weight_bytes(const OutputPlan& plan, const WeightLayout& weight,
                                     const CodedBlock& sample) const override {
    const std::uint64_t all = TRY(sizes_.parameters(plan, sample, sample.count));
    const std::uint64_t half = TRY(sizes_.parameters(plan, sample, sample.count / 2));
    const std::uint64_t more = all - std::min(all, half);
    const std::uint64_t more_rows = sample.count - sample.count / 2;
    return weight.rows * weight.format().packed_bytes() + (more * weight.rows + more_rows - 1) / more_rows;
  }

  Result<std::uint64_t> fixed_bytes(const OutputPlan& plan) const override {
    std::uint64_t bytes = TRY(sizes_.frame(plan));
    for (const WeightLayout& weight : plan.weights) {
      if (!weight.is_quantized()) bytes += weight.rows * weight.columns;
    }
    return bytes;
  }

 private:
  ParquetSizes sizes_;
};

class ParquetScheme final : public WritableScheme {
 public:
  std::string_view name() const override { return "parquet"; }
  // Its files contain no tensors: Weights::open() detects them before it opens a model.
  Result<std::unique_ptr<WeightsReader>> open(Model&, std::span<const Declared>) const override { return nullptr; }

  std::optional<Matrix> matrix_of(const TensorInfo& tensor) const override {
    if (!is_quantizable(tensor)) return std::nullopt;
    return Matrix{.rows = tensor.shape.front(), .columns = product(tensor.shape.subspan(1))};
  }

  Result<void> check_groups(const TensorInfo&, const Matrix&, unsigned) const override { return {}; }
  Affine affine(bool) const override { return Affine::kScaleZero; }
  DType parameter_dtype(DType) const override { return DType::kBF16; }
  Result<void> check_names(const std::string&, std::span<const WeightLayout>) const override { return {}; }

  Result<std::unique_ptr<SizeModel>> make_size_model() const override {
    return std::make_unique<ParquetSizeModel>(TRY(ParquetSizes::make()));
  }

  Result<std::unique_ptr<QuantizedWriter>> create_writer(const std::string& directory, const OutputPlan& plan,
                                                         bool sync) const override {
    return create_parquet_writer(directory, plan, sync);
  }

  std::string finished_key(const std::string& directory) const override {
    const auto text = read_text(join_path(directory, kParquetMetadataFile));
    const auto metadata = text ? parse_parquet_metadata(*text) : std::unexpected(text.error());
    return metadata ? metadata->key : "";
  }

  std::string_view last_file() const override { return kParquetMetadataFile; }
};

}  // namespace

const WritableScheme& parquet_scheme() {
  static const ParquetScheme scheme;
  return scheme;
}

}  // namespace ballast
