#pragma once

#include <cstddef>
#include <span>

#include <ballast/dtype.h>
#include <ballast/mlx_quantization.h>

#include "quantize/rows.h"

namespace ballast {

// Some rows of a matrix as MLX stores them: RowFormat::packed_bytes() of codes and RowFormat::groups() scales each.
struct MlxRows {
  std::span<const std::byte> packed;
  std::span<const std::byte> scales;
  std::span<const std::byte> biases;  // like the scales, or empty for none
};

// Dequantizes to F64, F32, F16 or BF16, bit for bit as mlx.core.dequantize on a CPU. Affine codes are multiplied and added in the
// dtype of the scales, `format.parameters`, rounded to it both times, then converted.
// Others are multiplied in `dtype`. The number of rows is what `packed` has; `out` has room for them, at any address.
void dequantize_mlx_rows(QuantizationMode mode, const RowFormat& format, const MlxRows& rows, DType dtype,
                         std::span<std::byte> out);

}  // namespace ballast
