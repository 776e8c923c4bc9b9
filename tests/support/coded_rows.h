#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/convert.h>

#include "quantize/packing.h"
#include "quantize/reference.h"
#include "quantize/rows.h"

namespace ballast::test {

// Rows after quantizing.
struct Coded {
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;
  QualitySums sums;

  bool same_bytes(const Coded& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return packed == other.packed && same(scales, other.scales) && same(offsets, other.offsets);
  }
};

inline Coded quantize(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                      std::span<const float> importance = {}) {
  const std::uint64_t count = rows.size() * 8 / bits(dtype) / format.columns;
  Coded coded{.packed = std::vector<std::byte>(count * format.packed_bytes()),
              .scales = std::vector<float>(count * format.groups()),
              .offsets = std::vector<float>(count * format.groups(), 1),  // to be replaced
              .sums = {}};
  coded.sums = quantize_rows(method, format, dtype, rows, importance, {coded.packed, coded.scales, coded.offsets});
  return coded;
}

inline std::vector<float> dequantize(const RowFormat& format, const Coded& coded) {
  std::vector<float> out(coded.packed.size() / format.packed_bytes() * format.columns);
  dequantize_rows(format, coded.packed, coded.scales, coded.offsets, out);
  return out;
}

// Row by row and group by group. `quantize_group` is given values, weights and codes of a group, as quantize_by_reference() is.
template <class QuantizeGroup>
Coded coded_by_reference(const RowFormat& format, const std::vector<float>& rows, std::span<const float> importance,
                         QuantizeGroup quantize_group) {
  Coded coded;
  for (std::size_t begin = 0; begin < rows.size(); begin += format.columns) {
    std::vector<std::uint8_t> codes(format.columns);
    for (std::size_t column = 0; column < format.columns; column += format.group_size) {
      const std::size_t count = std::min<std::size_t>(format.group_size, format.columns - column);
      const auto weights = importance.empty() ? importance : importance.subspan(column, count);
      const ReferenceGroup group =
          quantize_group(std::span(rows).subspan(begin + column, count), weights, std::span(codes).subspan(column, count));
      coded.scales.push_back(group.scale);
      coded.offsets.push_back(group.offset);
    }
    const std::size_t at = coded.packed.size();
    coded.packed.resize(at + format.packed_bytes());
    pack_codes(format.bits, codes, coded.packed.data() + at);
  }
  return coded;
}

inline std::vector<std::byte> stored(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * bits(dtype) / 8);
  EXPECT_TRUE(convert_values(DType::kF32, std::as_bytes(std::span(values)), dtype, bytes));
  return bytes;
}

inline float round_to(float value, DType dtype) {
  float out = 0;
  EXPECT_TRUE(convert_values(dtype, stored({value}, dtype), DType::kF32, std::as_writable_bytes(std::span(&out, 1))));
  return out;
}

}  // namespace ballast::test
