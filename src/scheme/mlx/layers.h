#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ballast/mlx_quantization.h>
#include <ballast/model.h>

#include "quantize/rows.h"
#include "scheme/mlx/mode.h"

namespace ballast {

// A quantized weight of a model, whose sizes are checked. Borrows from the model.
struct MlxLayer {
  std::string_view name;             // the prefix of its tensors' names
  const TensorInfo* packed;          // <name>.weight, else <name>
  const TensorInfo* scales;          // <name>.scales
  const TensorInfo* biases;          // <name>.biases, or null
  TensorQuantization quantization;   // from the config
  std::vector<std::uint64_t> shape;  // original
  DType dtype;                       // original: that of the scales, or BF16 if these are not floats
  std::vector<float> restore;        // column factors, or empty

  std::uint64_t columns() const { return shape.back(); }
  std::uint64_t rows() const { return scales->elements() / scales->shape.back(); }
  RowFormat format() const {
    const FloatType* const type = float_type(type_of(quantization.mode));
    return {.columns = columns(),
            .bits = quantization.bits,
            .group_size = quantization.group_size,
            .affine = type == nullptr ? Affine::kScaleBias : Affine::kScale,
            .parameters = type == nullptr ? dtype : type->scales.value_or(dtype),
            .restore = restore,
            .element = type == nullptr ? Element::kInteger : type->element};
  }
  std::uint64_t scale_bytes() const { return scales->bytes() / rows(); }  // of one row
};

// All quantized weights by name: whatever has scales. Sizes that contradict each other or the config, and scales or biases that
// belong to nothing, are kCorrupt.
Result<std::vector<MlxLayer>> find_mlx_layers(const Model& model, const MlxQuantization& config);

// Reads `count` rows from row `first` on and dequantizes them as dequantize_mlx_rows() does; `out` has exactly their size.
Result<void> read_mlx_rows(const Model& model, const MlxLayer& layer, std::uint64_t first, std::uint64_t count, DType dtype,
                           std::span<std::byte> out);

}  // namespace ballast
