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

// One quantized weight: its codes and parameters. Borrows from the QuantizedWeights it came from. The value in column i of a row,
// in group g, is
//   MLX, affine:  code[i] * scale[g] + bias[g]
//   MLX, others:  code[i] * scale[g], see QuantizationMode
//   Parquet:      (code[i] - zero_point[g]) * scale[g]
// multiplied by restore[i] if `restore` is not empty.
struct QuantizedWeight {
  std::string_view name;    // MLX: common prefix of the names of the stored tensors; Parquet: original name
  std::string_view scheme;  // mlx or parquet
  Shape shape;              // original; Parquet stores it as a matrix of shape.front() rows
  DType dtype;              // original; for MLX the dtype of the scales, or BF16 in modes whose scales are not floats
  unsigned bits;
  unsigned group_size;
  QuantizationMode mode;             // Parquet: kAffine
  TensorView packed;                 // a bit stream of codes per row, lowest bits first: U32 or U8; Parquet: U8 [rows, bytes]
  TensorView scales;                 // one per group of each row; Parquet: F32 [rows, groups]
  std::optional<TensorView> biases;  // MLX only
  std::optional<TensorView> zero_points;  // Parquet only: F32 [rows, groups]
  std::span<const float> restore;         // factor per column, applied last; empty if the columns were not scaled

  std::uint64_t elements() const;
  std::uint64_t groups() const { return scales.shape.back(); }  // per row
};

// The weights of an MLX or Parquet V2 Extended model directory, in memory from the caller's allocator. All const members are
// thread-safe.
class QuantizedWeights {
 public:
  QuantizedWeights(QuantizedWeights&&) noexcept;
  QuantizedWeights& operator=(QuantizedWeights&&) noexcept;
  ~QuantizedWeights();

  std::span<const QuantizedWeight> weights() const;  // sorted by name
  std::span<const TensorView> others() const;        // unquantized tensors, sorted by name
  // All stored tensors: as in the files for MLX; <weight>, <weight>.scales and <weight>.zero_points for Parquet.
  const LoadedModel& tensors() const;
  // The quantization config of the directory. For Parquet it is derived from the weights: one entry per weight, and the most
  // frequent quantization as default.
  const MlxQuantization& quantization() const;

  // Finds a weight by its name or by the name of its packed tensor; null if there is none.
  const QuantizedWeight* find(std::string_view name) const;

  // Dequantizes a weight to F32, F16 or BF16, bit-identical to dequantize_model(). The result has the name of the packed tensor.
  // An MLX weight read as `QuantizedWeight::dtype` is also bit-identical to mlx.core.dequantize on a CPU; see
  // docs/formats/mlx-quantized.md. `threads` of 0 means one per core.
  Result<Tensor> dequantize(std::string_view name, DType dtype, unsigned threads = 0) const;

 private:
  friend Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
  struct State;
  explicit QuantizedWeights(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Reads the quantization config and all tensors of a model directory, with a single copy into memory from the allocator. All
// sizes are checked before any tensor is loaded, except the sizes of values inside Parquet blocks, which are checked while
// reading.
Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
inline Result<QuantizedWeights> load_quantized_weights(const std::string& directory) {
  return load_quantized_weights(directory, {});
}

}  // namespace ballast
