#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>
#include <ballast/quantize_method.h>

#include "quantize/quality.h"
#include "quantize/value_type.h"

namespace ballast {

// The meaning and precision of a group's parameters.
enum class Affine : std::uint8_t {
  kScaleBias,  // MLX: q * scale + offset, both stored in the dtype of the weights
  kScaleZero,  // Parquet: (q - offset) * scale, both stored as BF16 values
  kScale,      // float types: element * scale; offsets are 0 and not stored
};

// How the rows of a matrix are divided into groups and quantized. Columns beyond the last whole group form a shorter one.
struct RowFormat {
  std::uint64_t columns = 0;
  unsigned bits = 4;  // 2, 3, 4, 5, 6 or 8
  unsigned group_size = 64;
  Affine affine = Affine::kScaleBias;
  DType parameters = DType::kBF16;  // of stored scales and offsets: F32, F16 or BF16; of a float type, FloatType::scales
  // Powers of two, one for every column, or empty: columns are divided by them before quantizing and multiplied after
  // dequantizing, both exactly.
  std::span<const float> restore;
  Element element = Element::kInteger;

  std::uint64_t groups() const { return (columns + group_size - 1) / group_size; }
  // Every row is a stream of codes, lowest bits first, that starts at a byte boundary.
  std::uint64_t packed_bytes() const { return (columns * bits + 7) / 8; }
  // Bytes of a row with its parameters.
  std::uint64_t stored_bytes() const {
    return packed_bytes() + groups() * (affine == Affine::kScale ? 1 : 2) * ballast::bits(parameters) / 8;
  }
};

// Rows are processed in blocks of so many values. Changing it changes Parquet files and sums of floats.
constexpr std::uint64_t kBlockValues = std::uint64_t{1} << 22;
constexpr std::uint64_t rows_of_block(std::uint64_t columns) {
  return columns == 0 || columns > kBlockValues ? 1 : kBlockValues / columns;
}

// The dtype of scales and biases in MLX.
constexpr DType mlx_parameter_dtype(DType weights) {
  if (weights == DType::kF64 || weights == DType::kF32) return DType::kF32;
  return weights == DType::kF16 ? DType::kF16 : DType::kBF16;
}

// Quantized rows of a matrix. Scales and offsets are rounded to the stored dtype.
struct CodedRows {
  std::span<std::byte> packed;  // packed_bytes() a row
  std::span<float> scales;      // groups() a row
  std::span<float> offsets;
};

// Quantizes whole rows, given as their bytes. `importance` has a weight >= 0 for every column, or is empty if all are equal; RTN
// ignores it, but the metrics do not. NaN and infinities give meaningless codes and non-finite sums. The result does not depend
// on the processor.
QualitySums quantize_rows(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                          std::span<const float> importance, const CodedRows& out);

// Dequantizes to F32: one multiplication and one addition for each value, rounded separately.
void dequantize_rows(const RowFormat& format, std::span<const std::byte> packed, std::span<const float> scales,
                     std::span<const float> offsets, std::span<float> out);

// Compares codes with the original rows: bit for bit the sums that quantize_rows() returned.
QualitySums compare_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, std::span<const std::byte> packed,
                         std::span<const float> scales, std::span<const float> offsets, std::span<const float> importance = {});

}  // namespace ballast
