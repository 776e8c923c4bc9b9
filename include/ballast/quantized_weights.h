#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ballast/error.h>
#include <ballast/load.h>
#include <ballast/mlx_quantization.h>
#include <ballast/tensor.h>

namespace ballast {

// One weight with what belongs to it. Borrows from the QuantizedWeights it came from. Column i of a row, in group g, is
//   MLX, affine:  code[i] * scale[g] + bias[g]
//   MLX, others:  code[i] * scale[g], see QuantizationMode
//   Parquet:      (code[i] - zero_point[g]) * scale[g]
// times restore[i], if there is any.
struct QuantizedWeight {
  std::string_view name;    // MLX: with which the names of the three tensors begin; Parquet: original
  std::string_view scheme;  // mlx or parquet
  Shape shape;              // original; Parquet codes it as a matrix of shape.front() rows
  DType dtype;              // original; of MLX that of the scales, and BF16 in modes whose scales are not floats
  unsigned bits;
  unsigned group_size;
  QuantizationMode mode;  // Parquet: kAffine
  TensorView packed;      // a stream of codes for every row, the lowest bits first: U32 or U8; Parquet: U8 [rows, bytes]
  TensorView scales;      // one for every group of a row; Parquet: F32 [rows, groups]
  std::optional<TensorView> biases;       // of MLX
  std::optional<TensorView> zero_points;  // of Parquet: F32 [rows, groups]
  std::span<const float> restore;         // what columns are to be multiplied by after all else, or nothing

  std::uint64_t elements() const;
  std::uint64_t groups() const { return scales.shape.back(); }  // of a row
};

// The weights of a directory of MLX or of Parquet V2 Extended, in memory of the caller's choice. All const members may be called
// from many threads at once.
class QuantizedWeights {
 public:
  QuantizedWeights(QuantizedWeights&&) noexcept;
  QuantizedWeights& operator=(QuantizedWeights&&) noexcept;
  ~QuantizedWeights();

  std::span<const QuantizedWeight> weights() const;  // by name
  std::span<const TensorView> others() const;        // tensors that are not quantized, by name
  // All of them: as they are in the files, or for Parquet <weight>, <weight>.scales and <weight>.zero_points.
  const LoadedModel& tensors() const;
  // Of the directory; for Parquet made from the weights: an entry for each, the most frequent quantization as default.
  const MlxQuantization& quantization() const;

  // By the name of the weight or of its packed tensor.
  const QuantizedWeight* find(std::string_view name) const;

  // The weight as F32, F16 or BF16, under the name of its packed tensor: to the bit what dequantize_model() gives. Of MLX, as
  // `QuantizedWeight::dtype`, it is also what mlx.core.dequantize gives on a CPU; see docs/formats/mlx-quantized.md. `threads` of
  // 0 is one per core.
  Result<Tensor> dequantize(std::string_view name, DType dtype, unsigned threads = 0) const;

 private:
  friend Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
  struct State;
  explicit QuantizedWeights(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Reads the quantization config of a model directory and all tensors of all its files, with one copy into memory from the
// allocator. All sizes are checked before anything is loaded; those of the values in Parquet's blocks when they are read.
Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
inline Result<QuantizedWeights> load_quantized_weights(const std::string& directory) {
  return load_quantized_weights(directory, {});
}

}  // namespace ballast
