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
  // compressed-tensors: as kScaleZero, with scales in the dtype of the weights
  kScaleCode,    // the offset is one of the codes
  kScaleMiddle,  // the offset is 2^(bits - 1) for all groups, and not stored
};
// Whether 0 has a code of its own.
constexpr bool has_whole_zero(Affine affine) { return affine == Affine::kScaleCode || affine == Affine::kScaleMiddle; }

// How the power of two for a group of floats is rounded from its largest magnitude.
enum class PowerRule : std::uint8_t {
  kClipsNothing,  // MLX
  kClipsQuarter,  // compressed-tensors: the largest value becomes at most 1.75 times that of the largest power of two
};

// Rows are processed in blocks of so many values. Changing it changes Parquet files and sums of floats.
constexpr std::uint64_t kBlockValues = std::uint64_t{1} << 22;
constexpr std::uint64_t rows_of_block(std::uint64_t columns) {
  return columns == 0 || columns > kBlockValues ? 1 : kBlockValues / columns;
}
// The same in multiples of 128 rows, for formats in which rows share words or scales.
constexpr std::uint64_t aligned_rows_of_block(std::uint64_t columns) {
  constexpr std::uint64_t kAligned = 128;
  const std::uint64_t rows = rows_of_block(columns);
  return rows < kAligned ? kAligned : rows - rows % kAligned;
}

// The group size for whole rows of any length: the vectors of all processors divide it.
constexpr unsigned padded_group_size(unsigned group_size) {
  constexpr unsigned kUnit = 32;
  return group_size <= kUnit / 2 ? group_size : (group_size + kUnit - 1) / kUnit * kUnit;
}

// How the rows of a matrix are divided into groups and quantized. Columns beyond the last whole group form a shorter one.
struct RowFormat {
  std::uint64_t columns = 0;
  unsigned bits = 4;  // 2 to 8
  // At most 256, or a multiple of 32 that is not less than the columns: the row is one group.
  unsigned group_size = 64;
  Affine affine = Affine::kScaleBias;
  DType parameters = DType::kBF16;  // of stored scales and offsets: F32, F16 or BF16; of a float type, FloatType::scales
  // Powers of two, one for every column, or empty: columns are divided by them before quantizing and multiplied after
  // dequantizing, both exactly.
  std::span<const float> restore;
  Element element = Element::kInteger;
  PowerRule power_rule = PowerRule::kClipsNothing;
  bool is_aligned = false;      // blocks have a multiple of 128 rows
  std::uint64_t band_rows = 1;  // adjacent rows that share the scales of their groups; more than 1 for kFloat8 alone
  // One number for the whole tensor, 0 if there is none: a divisor of scales that are F8_E4M3, or else the scale of all values.
  float whole_scale = 0;

  std::uint64_t groups() const { return (columns + group_size - 1) / group_size; }
  // Every row is a stream of codes, lowest bits first, that starts at a byte boundary.
  std::uint64_t packed_bytes() const { return (columns * bits + 7) / 8; }
  // Bytes of a row with its parameters, unless rows share some.
  std::uint64_t stored_bytes() const {
    const bool has_offsets = affine != Affine::kScale && affine != Affine::kScaleMiddle;
    return packed_bytes() + groups() * (has_offsets ? 2 : 1) * ballast::bits(parameters) / 8;
  }
  // Rows that are processed together.
  std::uint64_t block_rows() const { return is_aligned ? aligned_rows_of_block(columns) : rows_of_block(columns); }
  // What stored scales are divided by.
  float divisor() const { return parameters == DType::kF8E4M3 && whole_scale != 0 ? whole_scale : 1; }
};

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

// The largest magnitude, 0 if there are no values. NaN is ignored.
float largest_magnitude(DType dtype, std::span<const std::byte> values);
// The scale of F8_E4M3 values with this largest magnitude: rounded to the dtype of scales, and never 0.
float fp8_scale(float largest, DType dtype);

// Compares codes with the original rows: bit for bit the sums that quantize_rows() returned. compare_decoded_rows() does the same
// with what dequantize_rows() made of the codes; of the format it needs the columns and the group size.
QualitySums compare_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, std::span<const std::byte> packed,
                         std::span<const float> scales, std::span<const float> offsets, std::span<const float> importance = {});
QualitySums compare_decoded_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                                 std::span<const float> decoded);

}  // namespace ballast
