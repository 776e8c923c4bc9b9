#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ballast/error.h>
#include <ballast/load.h>
#include <ballast/quantization_config.h>
#include <ballast/tensor.h>

namespace ballast {

// One weight with what belongs to it. Borrows from the QuantizedWeights it came from.
struct QuantizedWeight {
  std::string_view name;  // with which the names of the three tensors begin
  Shape shape;            // that it had before it was quantized
  DType dtype;            // that it had before: the scales', and BF16 in modes whose scales are no floats
  unsigned bits;
  unsigned group_size;
  QuantizationMode mode;
  TensorView packed;  // <name>.weight, else <name>: U32 or U8, a stream of codes for every row, the lowest bits first
  TensorView scales;  // one for every group of a row
  std::optional<TensorView> biases;
  std::span<const float> restore;  // what columns are to be multiplied by after all else, or nothing

  std::uint64_t elements() const;
  std::uint64_t groups() const { return scales.shape.back(); }  // of a row
};

// The weights of a directory in MLX's layout, in memory of the caller's choice. All const members may be called from many threads
// at once.
class QuantizedWeights {
 public:
  QuantizedWeights(QuantizedWeights&&) noexcept;
  QuantizedWeights& operator=(QuantizedWeights&&) noexcept;
  ~QuantizedWeights();

  std::span<const QuantizedWeight> weights() const;  // by name
  std::span<const TensorView> others() const;        // tensors that are not quantized, by name
  const LoadedModel& tensors() const;                // all of them, as they are in the files
  const QuantizationConfig& config() const;

  // By the name of the weight or of its packed tensor.
  const QuantizedWeight* find(std::string_view name) const;

  // The weight as F32, F16 or BF16, under the name of its packed tensor. As `QuantizedWeight::dtype` it is to the bit what
  // mlx.core.dequantize gives on a CPU; see docs/formats/mlx-quantized.md. `threads` of 0 is one per core.
  Result<Tensor> dequantize(std::string_view name, DType dtype, unsigned threads = 0) const;

 private:
  friend Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
  struct State;
  explicit QuantizedWeights(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Reads the quantization config of a model directory and all tensors of all its files, with one copy into memory from the
// allocator. All sizes are checked before anything is loaded.
Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options);
inline Result<QuantizedWeights> load_quantized_weights(const std::string& directory) {
  return load_quantized_weights(directory, {});
}

}  // namespace ballast
