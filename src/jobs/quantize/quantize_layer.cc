#include <algorithm>
#include <cmath>
#include <mutex>

#include <ballast/convert.h>
#include <ballast/quantize.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "quantize/guessed_importance.h"
#include "quantize/rows.h"

namespace ballast {
namespace {

RowFormat format_of(const QuantizedLayer& layer, DType weights) {
  const bool is_mlx = layer.format == QuantizeFormat::kMlx;
  return {.columns = layer.columns,
          .bits = layer.bits,
          .group_size = layer.group_size,
          .affine = is_mlx ? Affine::kScaleBias : Affine::kScaleZero,
          .parameters = is_mlx ? mlx_parameter_dtype(weights) : DType::kBF16};
}

Result<void> check(const TensorView& weights, const QuantizeLayerOptions& options) {
  const QuantizeConfig config{.bit_width = options.bits, .group_size = options.group_size, .format = options.format};
  TRY(validate(config));
  if (options.format != QuantizeFormat::kMlx && options.format != QuantizeFormat::kParquet) {
    return fail(Errc::kInvalidArgument, "format is {}, a single tensor can be quantized to mlx or parquet", name(options.format));
  }
  if (!can_convert(weights.dtype, DType::kF32)) {
    return fail(Errc::kUnsupported, "tensor {}: {} cannot be quantized", quote(weights.name), name(weights.dtype));
  }
  const auto elements = checked_elements(weights.shape);
  if (!elements || *elements == 0 || weights.shape.size() < 2) {
    return fail(Errc::kInvalidArgument, "tensor {}: shape {} is not a matrix", quote(weights.name), to_string(weights.shape));
  }
  const auto all_bits = checked_mul(*elements, bits(weights.dtype));
  if (!all_bits || *all_bits / 8 != weights.bytes.size() || *all_bits % 8 != 0) {
    return fail(Errc::kInvalidArgument, "tensor {}: {} bytes for {} values of {}", quote(weights.name), weights.bytes.size(),
                *elements, name(weights.dtype));
  }
  return {};
}

std::vector<float> guess(const TensorView& weights, const QuantizedLayer& layer) {
  const std::uint64_t row_bytes = weights.bytes.size() / layer.rows;
  GuessedImportance guessed(layer.columns);
  for (const RowRun& run : rows_to_guess_from(layer.rows)) {
    guessed.add(weights.dtype, weights.bytes.subspan(run.first * row_bytes, run.count * row_bytes));
  }
  return guessed.importance();
}

}  // namespace

std::vector<float> QuantizedLayer::dequantize() const {
  std::vector<float> values(rows * columns);
  dequantize_rows(format_of(*this, DType::kF32), packed, scales, offsets, values);
  return values;
}

Result<QuantizedLayer> quantize_layer(const TensorView& weights, const QuantizeLayerOptions& options) {
  TRY(check(weights, options));
  const bool is_mlx = options.format == QuantizeFormat::kMlx;
  const std::uint64_t elements = *checked_elements(weights.shape);
  QuantizedLayer layer{.bits = options.bits, .group_size = options.group_size, .format = options.format};
  layer.columns = is_mlx ? weights.shape.back() : elements / weights.shape.front();
  layer.rows = elements / layer.columns;
  if (is_mlx && layer.columns % layer.group_size != 0) {
    return fail(Errc::kUnsupported, "tensor {}: {} columns are not a multiple of group_size {}, as MLX requires",
                quote(weights.name), layer.columns, layer.group_size);
  }
  if (!options.importance.empty() && options.importance.size() != layer.columns) {
    return fail(Errc::kInvalidArgument, "tensor {}: importance has {} values, the tensor has {} columns", quote(weights.name),
                options.importance.size(), layer.columns);
  }
  const RowFormat format = format_of(layer, weights.dtype);
  layer.packed.resize(layer.rows * format.packed_bytes());
  layer.scales.resize(layer.rows * format.groups());
  layer.offsets.resize(layer.rows * format.groups());

  std::vector<float> guessed;
  if (options.importance.empty() && options.method == QuantizeMethod::kAuto) guessed = guess(weights, layer);
  const std::span<const float> importance = guessed.empty() ? std::span(options.importance) : std::span<const float>(guessed);
  constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 18;
  const std::uint64_t block_rows = std::max<std::uint64_t>(kPieceValues / layer.columns, 1);
  const std::uint64_t row_bytes = weights.bytes.size() / layer.rows;
  std::vector<QualitySums> sums((layer.rows + block_rows - 1) / block_rows);
  parallel_for(sums.size(), options.threads, [&](unsigned, std::size_t i) {
    const std::uint64_t first = i * block_rows;
    const std::uint64_t rows = std::min(block_rows, layer.rows - first);
    const auto part = [&](auto& all, std::uint64_t per_row) { return std::span(all).subspan(first * per_row, rows * per_row); };
    sums[i] = quantize_rows(options.method, format, weights.dtype, weights.bytes.subspan(first * row_bytes, rows * row_bytes),
                            importance,
                            {.packed = part(layer.packed, format.packed_bytes()),
                             .scales = part(layer.scales, format.groups()),
                             .offsets = part(layer.offsets, format.groups())});
    return true;
  });
  QualitySums all;
  for (const QualitySums& block : sums) all.add(block);
  if (!std::isfinite(all.weights)) {
    return fail(Errc::kCorrupt, "tensor {}: some values are NaN or infinite", quote(weights.name));
  }
  if (!guessed.empty()) all.weighted = all.weighted_error = 0;  // not measured inputs
  layer.quality = quality_of(all);
  return layer;
}

}  // namespace ballast
