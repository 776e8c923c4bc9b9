#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>
#include <ballast/quantize_method.h>

#include "quantize/quality.h"

namespace ballast {

// What the parameters of a group mean, and how precisely they are stored.
enum class Affine : std::uint8_t {
  kScaleBias,  // MLX: q * scale + offset, both stored in the dtype of the weights
  kScaleZero,  // Parquet: (q - offset) * scale, both stored as BF16 values
};

// How the rows of a matrix are cut into groups and coded. Columns beyond the last whole group make a shorter one.
struct RowFormat {
  std::uint64_t columns = 0;
  unsigned bits = 4;  // 2, 3, 4, 5, 6 or 8
  unsigned group_size = 64;
  Affine affine = Affine::kScaleBias;
  DType parameters = DType::kBF16;  // what scales and offsets are rounded to: F32, F16 or BF16
  // Powers of two, one for every column, or none: columns are divided by them before they are coded, and multiplied when read,
  // both of which is exact.
  std::span<const float> restore;

  std::uint64_t groups() const { return (columns + group_size - 1) / group_size; }
  // Every row is a stream of codes, the lowest bits first, that begins at a byte.
  std::uint64_t packed_bytes() const { return (columns * bits + 7) / 8; }
  // What a row takes with its parameters.
  std::uint64_t stored_bytes() const { return packed_bytes() + groups() * 2 * ballast::bits(parameters) / 8; }
};

// Rows are worked on in blocks of so many values. Files of Parquet and sums of floats depend on it.
constexpr std::uint64_t kBlockValues = std::uint64_t{1} << 22;
constexpr std::uint64_t rows_of_block(std::uint64_t columns) {
  return columns == 0 || columns > kBlockValues ? 1 : kBlockValues / columns;
}

// What MLX stores the scales and biases of weights in.
constexpr DType mlx_parameter_dtype(DType weights) {
  if (weights == DType::kF64 || weights == DType::kF32) return DType::kF32;
  return weights == DType::kF16 ? DType::kF16 : DType::kBF16;
}

// Some rows of a matrix, coded. Scales and offsets are rounded to what is stored.
struct CodedRows {
  std::span<std::byte> packed;  // packed_bytes() a row
  std::span<float> scales;      // groups() a row
  std::span<float> offsets;
};

// Quantizes whole rows, given as their bytes. `importance` has a weight >= 0 for every column, or is empty for all alike; RTN
// does not look at it, but the figures do. Values that are no numbers give codes that mean nothing, and figures that tell. The
// result does not depend on the processor.
QualitySums quantize_rows(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                          std::span<const float> importance, const CodedRows& out);

// The numbers that the codes stand for, in F32: one multiplication and one addition each, rounded apart.
void dequantize_rows(const RowFormat& format, std::span<const std::byte> packed, std::span<const float> scales,
                     std::span<const float> offsets, std::span<float> out);

// How far the codes are from the rows they stand for: the same figures, to the bit, that quantize_rows() gave.
QualitySums compare_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, std::span<const std::byte> packed,
                         std::span<const float> scales, std::span<const float> offsets, std::span<const float> importance = {});

}  // namespace ballast
