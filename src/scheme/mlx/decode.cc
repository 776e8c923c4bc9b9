#include "scheme/mlx/decode.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ballast/convert.h>

#include "convert/kernels.h"
#include "quantize/packing.h"

namespace ballast {
namespace {

constexpr std::size_t kChunk = 1024;  // columns at a time: whole groups, whose codes begin at a byte
constexpr std::size_t kSmallestGroup = 16;

template <class T>
using Chunk = std::array<T, kChunk>;
using GroupParameters = std::array<float, kChunk / kSmallestGroup>;

std::byte* as_bytes(float* values) { return reinterpret_cast<std::byte*>(values); }
const std::byte* as_bytes(const float* values) { return reinterpret_cast<const std::byte*>(values); }

void load(DType from, const std::byte* in, std::size_t count, float* out) {
  if (from == DType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
  } else {
    to_f32(from, in, count, as_bytes(out), Stores::kOrdinary);
  }
}

void store(DType to, const float* values, std::size_t count, std::byte* out) {
  if (to == DType::kF32) {
    std::memcpy(out, values, count * sizeof(float));
  } else if (to == DType::kF64) {
    for (std::size_t i = 0; i < count; ++i) {
      const double value = values[i];
      std::memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
  } else {
    from_f32(to, as_bytes(values), count, out, Stores::kOrdinary);
  }
}

// To the nearest values of a dtype; F64 has them all.
void round(DType dtype, float* values, std::size_t count) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return;
  Chunk<std::uint16_t> rounded;
  auto* const bytes = reinterpret_cast<std::byte*>(rounded.data());
  store(dtype, values, count, bytes);
  load(dtype, bytes, count, values);
}

// Calls work(group, begin, end) for the groups of the first `count` values.
template <class Work>
void for_each_group(std::size_t count, std::size_t group_size, Work&& work) {
  for (std::size_t begin = 0, group = 0; begin < count; begin += group_size, ++group) {
    work(group, begin, std::min(begin + group_size, count));
  }
}

// A part of a row, of at most a chunk, that begins with a group.
struct Part {
  std::size_t count;
  const std::byte* packed;
  const std::byte* scales;
  const std::byte* biases;  // null: none
  std::byte* out;
};

void dequantize_affine(const RowFormat& format, const Part& part, DType dtype) {
  Chunk<std::uint8_t> codes;
  Chunk<float> values;
  GroupParameters parameters;
  const std::size_t groups = (part.count + format.group_size - 1) / format.group_size;
  unpack_codes(format.bits, part.packed, std::span(codes).first(part.count));

  load(format.parameters, part.scales, groups, parameters.data());
  for_each_group(part.count, format.group_size, [&](std::size_t group, std::size_t begin, std::size_t end) {
    const float scale = parameters[group];
    for (std::size_t i = begin; i < end; ++i) values[i] = static_cast<float>(codes[i]) * scale;
  });
  round(format.parameters, values.data(), part.count);

  if (part.biases != nullptr) {
    load(format.parameters, part.biases, groups, parameters.data());
    for_each_group(part.count, format.group_size, [&](std::size_t group, std::size_t begin, std::size_t end) {
      const float bias = parameters[group];
      for (std::size_t i = begin; i < end; ++i) values[i] += bias;
    });
    if (dtype != format.parameters) round(format.parameters, values.data(), part.count);
  }
  store(dtype, values.data(), part.count, part.out);
}

using CodeTable = std::array<float, 256>;

const CodeTable& e4m3_table() {
  static const CodeTable values = [] {
    std::array<std::byte, 256> codes{};
    for (std::size_t code = 0; code < codes.size(); ++code) codes[code] = static_cast<std::byte>(code);
    CodeTable table{};
    to_f32(DType::kF8E4M3, codes.data(), codes.size(), as_bytes(table.data()), Stores::kOrdinary);
    return table;
  }();
  return values;
}

const CodeTable& e2m1_table() {
  static constexpr CodeTable kTable{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                    -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  return kTable;
}

void dequantize_float(QuantizationMode mode, const RowFormat& format, const Part& part, DType dtype) {
  Chunk<std::uint8_t> codes;
  Chunk<float> values;
  GroupParameters scales;
  const std::size_t groups = (part.count + format.group_size - 1) / format.group_size;
  unpack_codes(format.bits, part.packed, std::span(codes).first(part.count));

  for (std::size_t group = 0; group < groups; ++group) {
    const auto code = std::to_integer<std::uint8_t>(part.scales[group]);
    scales[group] = mode == QuantizationMode::kNvfp4 ? e4m3_table()[code] : std::ldexp(1.0F, code - 127);
  }
  round(dtype, scales.data(), groups);

  const CodeTable& table = mode == QuantizationMode::kMxfp8 ? e4m3_table() : e2m1_table();
  for_each_group(part.count, format.group_size, [&](std::size_t group, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values[i] = table[codes[i]] * scales[group];
  });
  store(dtype, values.data(), part.count, part.out);
}

// Scaled as floats, which hold all that the other dtypes do.
void dequantize_and_restore(QuantizationMode mode, const RowFormat& format, const MlxRows& rows, DType dtype,
                            std::span<std::byte> out) {
  RowFormat scaled = format;
  scaled.restore = {};
  std::vector<float> values(rows.packed.size() / format.packed_bytes() * format.columns);
  const std::span bytes = std::as_writable_bytes(std::span(values));
  dequantize_mlx_rows(mode, scaled, rows, DType::kF32, bytes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= format.restore[i % format.columns];
  const auto converted = convert_values(DType::kF32, bytes, dtype, out);
  assert(converted);
}

}  // namespace

void dequantize_mlx_rows(QuantizationMode mode, const RowFormat& format, const MlxRows& rows, DType dtype,
                         std::span<std::byte> out) {
  assert(kChunk % format.group_size == 0);
  if (rows.packed.empty()) return;
  if (!format.restore.empty()) return dequantize_and_restore(mode, format, rows, dtype, out);
  const bool affine = mode == QuantizationMode::kAffine;
  const std::size_t count = rows.packed.size() / format.packed_bytes();
  const std::size_t parameter_bytes = affine ? bits(format.parameters) / 8 : 1;
  const std::size_t value_bytes = bits(dtype) / 8;
  assert(rows.scales.size() == count * format.groups() * parameter_bytes);
  assert(out.size() == count * format.columns * value_bytes);
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column < format.columns; column += kChunk) {
      const std::size_t parameter = (row * format.groups() + column / format.group_size) * parameter_bytes;
      const Part part{.count = std::min<std::size_t>(kChunk, format.columns - column),
                      .packed = rows.packed.data() + row * format.packed_bytes() + column * format.bits / 8,
                      .scales = rows.scales.data() + parameter,
                      .biases = rows.biases.empty() ? nullptr : rows.biases.data() + parameter,
                      .out = out.data() + (row * format.columns + column) * value_bytes};
      if (affine) {
        dequantize_affine(format, part, dtype);
      } else {
        dequantize_float(mode, format, part, dtype);
      }
    }
  }
}

}  // namespace ballast
