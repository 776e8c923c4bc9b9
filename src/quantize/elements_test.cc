#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/convert.h>

#include "quantize/packing.h"
#include "quantize/reference.h"
#include "quantize/rows.h"
#include "tests/support/coded_rows.h"
#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::Coded;
using test::coded_by_reference;
using test::dequantize;
using test::instruction_sets;
using test::OnlyInstructionSet;
using test::round_to;
using test::stored;

constexpr QuantizeType kTypes[] = {QuantizeType::kMxfp4, QuantizeType::kMxfp8, QuantizeType::kNvfp4};

RowFormat format_of(QuantizeType type, std::uint64_t columns) {
  const FloatType& of = *float_type(type);
  return {.columns = columns,
          .bits = of.bits,
          .group_size = of.group_size,
          .affine = Affine::kScale,
          .parameters = of.scales.value_or(DType::kF32),
          .element = of.element};
}

Coded quantize(QuantizeMethod method, const RowFormat& format, DType dtype, const std::vector<float>& rows,
               std::span<const float> importance = {}) {
  Coded coded = test::quantize(method, format, dtype, stored(rows, dtype), importance);
  EXPECT_EQ(coded.offsets, std::vector<float>(coded.offsets.size(), 0));
  return coded;
}

Coded by_reference(QuantizeMethod method, const RowFormat& format, DType dtype, const std::vector<float>& rows,
                   std::span<const float> importance) {
  return coded_by_reference(format, rows, importance, [&](auto values, auto weights, auto codes) {
    return quantize_elements_by_reference(method, format, dtype, values, weights, codes);
  });
}

// The values of a block are not adjacent, so they are collected.
Coded bands_by_reference(QuantizeMethod method, const RowFormat& format, const std::vector<float>& rows,
                         std::span<const float> importance) {
  const std::size_t count = rows.size() / format.columns;
  Coded coded{.packed = std::vector<std::byte>(count * format.packed_bytes()),
              .scales = std::vector<float>(count * format.groups()),
              .offsets = std::vector<float>(count * format.groups()),
              .sums = {}};
  for (std::size_t first = 0; first < count; first += format.band_rows) {
    const std::size_t end = std::min<std::size_t>(first + format.band_rows, count);
    for (std::size_t group = 0; group < format.groups(); ++group) {
      const std::size_t begin = group * format.group_size;
      const std::size_t width = std::min<std::size_t>(format.group_size, format.columns - begin);
      std::vector<float> values;
      std::vector<float> weights;
      for (std::size_t row = first; row < end; ++row) {
        const auto part = std::span(rows).subspan(row * format.columns + begin, width);
        values.insert(values.end(), part.begin(), part.end());
        weights.insert(weights.end(), importance.begin() + static_cast<std::ptrdiff_t>(begin),
                       importance.begin() + static_cast<std::ptrdiff_t>(begin + width));
      }
      const float scale = band_scale_by_reference(method, format, values, weights);
      std::vector<std::uint8_t> codes(values.size());
      code_by_reference(format, values, scale, codes);
      for (std::size_t row = first; row < end; ++row) {
        coded.scales[row * format.groups() + group] = scale;
        std::memcpy(&coded.packed[row * format.columns + begin], &codes[(row - first) * width], width);
      }
    }
  }
  return coded;
}

// Groups of all kinds: normal, with outliers, zeros of both signs, tiny, large, on the grid and halfway between.
std::vector<float> mixed_values(std::size_t count, std::size_t group_size, DType dtype) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    switch (i / group_size % 12) {
      case 0: values[i] = i % 31 == 0 ? value * 50 : value; break;
      case 1: values[i] = 0.37F; break;
      case 2: values[i] = i % 2 == 0 ? 0.0F : -0.0F; break;
      case 3: values[i] = value * 3e-5F; break;
      case 4: values[i] = value * 1e5F; break;
      case 5: values[i] = std::abs(value); break;
      case 6: values[i] = dtype == DType::kF16 ? value * 4e5F : value * 1e36F; break;
      case 7: values[i] = dtype == DType::kF16 ? value * 1e-5F : value * 1e-36F; break;
      case 8: values[i] = static_cast<float>(static_cast<int>(random() % 49) - 24) * 0.25F; break;
      case 9: values[i] = i % group_size == 3 ? 1.0F : 0.0F; break;
      case 10: values[i] = static_cast<float>(random() % 7168) * 0.0625F - 224; break;
      default: values[i] = value; break;
    }
    values[i] = round_to(values[i], dtype);
  }
  return values;
}

TEST(QuantizeElements, EveryInstructionSetGivesTheReferencesBytes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 4);
  for (const std::uint64_t columns : {32U, 96U, 2048U + 32U}) {
    std::vector<float> importance(columns);
    for (float& weight : importance) weight = uniform(random);
    for (const QuantizeType type : kTypes) {
      const RowFormat format = format_of(type, columns);
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const std::vector<float> rows = mixed_values(columns * 13, format.group_size, dtype);
        for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kSearch}) {
          const Coded plain = by_reference(method, format, dtype, rows, {});
          const Coded weighted = by_reference(method, format, dtype, rows, importance);
          for (const std::int64_t target : instruction_sets()) {
            const OnlyInstructionSet only(target);
            const std::string what = fmt::format("{}, {}, {} columns of {}, {}", hwy::TargetName(target), name(type), columns,
                                                 name(dtype), name(method));
            ASSERT_TRUE(quantize(method, format, dtype, rows).same_bytes(plain)) << what;
            ASSERT_TRUE(quantize(method, format, dtype, rows, importance).same_bytes(weighted)) << what << " with importance";
          }
        }
      }
    }
  }
}

// F8_E4M3 with a float as scale: of a row, of blocks of rows and columns, and given.
TEST(QuantizeElements, BandsGiveTheReferencesBytes) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(0, 4);
  for (const std::uint64_t columns : {64U, 100U, 300U, 2048U + 17U}) {
    std::vector<float> importance(columns);
    for (float& weight : importance) weight = uniform(random);
    for (const std::uint64_t band : {1U, 4U}) {
      RowFormat format = format_of(QuantizeType::kFp8, columns);
      format.band_rows = band;
      format.parameters = band == 1 ? DType::kBF16 : DType::kF32;
      if (band == 1) format.group_size = padded_group_size(static_cast<unsigned>(columns));
      const std::vector<float> rows = mixed_values(columns * 10, 32, DType::kBF16);
      for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kSearch}) {
        const Coded expected = bands_by_reference(method, format, rows, importance);
        for (const std::int64_t target : instruction_sets()) {
          const OnlyInstructionSet only(target);
          ASSERT_TRUE(quantize(method, format, DType::kF32, rows, importance).same_bytes(expected))
              << hwy::TargetName(target) << ", " << columns << " columns in bands of " << band << ", " << name(method);
        }
      }
    }
  }
}

TEST(QuantizeElements, WholeScalesAreUsedAsTheyAre) {
  RowFormat format = format_of(QuantizeType::kFp8, 64);
  format.whole_scale = 0.5F;
  std::vector<float> row(64, 3.5F);
  const Coded coded = quantize(QuantizeMethod::kSearch, format, DType::kF32, row);
  EXPECT_EQ(coded.scales, std::vector<float>{0.5F});
  EXPECT_EQ(dequantize(format, coded), row);
  EXPECT_EQ(largest_magnitude(DType::kF32, std::as_bytes(std::span(row))), 3.5F);
  EXPECT_EQ(largest_magnitude(DType::kF32, {}), 0);
}

// A tensor whose largest magnitude is 2.688, and a block of 1.152: the scale is stored as 192, and code 7 stands for 1.152.
TEST(QuantizeElements, DivisorOfScalesGoldenValues) {
  RowFormat format = format_of(QuantizeType::kNvfp4, 16);
  format.whole_scale = 2688 / 2.688F;
  std::vector<float> row(16);
  row[3] = 1.152F;
  const Coded coded = quantize(QuantizeMethod::kRtn, format, DType::kF32, row);
  EXPECT_EQ(coded.scales, std::vector<float>{192});
  EXPECT_EQ(dequantize(format, coded)[3], 6 * (192 / format.whole_scale));
}

TEST(QuantizeElements, ExponentsOfCompressedTensors) {
  for (const auto& [largest, scale] :
       {std::pair(7.0F, 2.0F), std::pair(6.9F, 1.0F), std::pair(4.0F, 1.0F), std::pair(3.5F, 1.0F)}) {
    RowFormat format = format_of(QuantizeType::kMxfp4, 32);
    format.power_rule = PowerRule::kClipsQuarter;
    std::vector<float> row(32);
    row[5] = -largest;
    EXPECT_EQ(quantize(QuantizeMethod::kRtn, format, DType::kF32, row).scales, std::vector<float>{scale}) << largest;
  }
}

TEST(QuantizeElements, EveryCodeHasItsValueOnEveryInstructionSet) {
  for (const QuantizeType type : kTypes) {
    const RowFormat format = format_of(type, 256);
    std::vector<std::uint8_t> codes(256);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % (1U << format.bits));
    Coded coded{.packed = std::vector<std::byte>(format.packed_bytes()),
                .scales = std::vector<float>(format.groups(), 0.25F),
                .offsets = std::vector<float>(format.groups()),
                .sums = {}};
    pack_codes(format.bits, codes, coded.packed.data());
    for (const std::int64_t target : instruction_sets()) {
      const OnlyInstructionSet only(target);
      const std::vector<float> values = dequantize(format, coded);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        if (format.bits == 8 && codes[i] % 128 == 127) continue;  // NaN
        EXPECT_EQ(values[i], element_by_reference(format.element, codes[i]) * 0.25F) << name(type) << " " << i;
      }
    }
  }
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// By mlx.core.quantize of MLX 0.32.4.
TEST(QuantizeElements, RoundToNearestGoldenBytes) {
  std::vector<float> row(32);
  constexpr std::array<float, 16> kValues{0.5F, -1, 6, -6, 1.5F, -0.0F, 3, -4, 0.25F, 0.75F, 1.25F, -1.75F, 2.5F, 3.5F, -5, 5.5F};
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = kValues[i % 16] * (i < 16 ? 1 : 0.5F);
  const auto coded_as = [&](QuantizeType type) {
    const Coded coded = quantize(QuantizeMethod::kRtn, format_of(type, 32), DType::kF32, row);
    return fmt::format("{} {}", hex(coded.packed), fmt::join(coded.scales, " "));
  };
  EXPECT_EQ(coded_as(QuantizeType::kMxfp4), "a1f703e510b2547e90d501c310a1325c 1");
  EXPECT_EQ(coded_as(QuantizeType::kMxfp8), "60e87cfc6c8074f858646aee7276fa7b58e074f464806cf0505c62e66a6ef273 0.015625");
  EXPECT_EQ(coded_as(QuantizeType::kNvfp4), "a1f703e510b2547ea1f703e510b2547e 1 0.5");
}

TEST(QuantizeElements, MetricsAreThoseOfWhatIsReadBack) {
  for (const QuantizeType type : kTypes) {
    const RowFormat format = format_of(type, 768);
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float> rows(768 * 9);
    for (float& value : rows) value = normal(random);
    const Coded coded = quantize(QuantizeMethod::kSearch, format, DType::kF32, rows);
    const std::vector<float> back = dequantize(format, coded);
    double weights = 0;
    double error = 0;
    double worst = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double gap = static_cast<double>(back[i]) - static_cast<double>(rows[i]);
      weights += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
      error += gap * gap;
      worst = std::max(worst, std::abs(gap));
    }
    EXPECT_NEAR(coded.sums.weights / weights, 1, 1e-5);
    EXPECT_NEAR(coded.sums.error / error, 1, 1e-5);
    EXPECT_NEAR(coded.sums.max_error / worst, 1, 1e-5);
    const QualitySums again =
        compare_rows(format, DType::kF32, std::as_bytes(std::span(rows)), coded.packed, coded.scales, coded.offsets);
    EXPECT_EQ(again.error, coded.sums.error);
    EXPECT_EQ(again.cross, coded.sums.cross);
  }
}

TEST(QuantizeElements, StoredBytesAreThoseOfTheTypes) {
  EXPECT_EQ(format_of(QuantizeType::kMxfp4, 256).stored_bytes(), 128 + 8);
  EXPECT_EQ(format_of(QuantizeType::kMxfp8, 256).stored_bytes(), 256 + 8);
  EXPECT_EQ(format_of(QuantizeType::kNvfp4, 256).stored_bytes(), 128 + 16);
}

// The squared error of `search`, as a share of that of `rtn`.
TEST(QuantizeElements, SearchLowersTheError) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 0.02);
  std::student_t_distribution<double> student(5);
  std::vector<float> gauss(1024 * 256);
  std::vector<float> heavy(gauss.size());
  for (std::size_t i = 0; i < gauss.size(); ++i) {
    gauss[i] = round_to(static_cast<float>(normal(random)), DType::kBF16);
    heavy[i] = round_to(static_cast<float>(0.02 * student(random)), DType::kBF16);
  }
  const auto share = [](QuantizeType type, const std::vector<float>& values) {
    const RowFormat format = format_of(type, 1024);
    return quantize(QuantizeMethod::kSearch, format, DType::kBF16, values).sums.error /
           quantize(QuantizeMethod::kRtn, format, DType::kBF16, values).sums.error;
  };
  for (const auto* values : {&gauss, &heavy}) {
    EXPECT_LE(share(QuantizeType::kMxfp4, *values), 0.89);
    EXPECT_LE(share(QuantizeType::kNvfp4, *values), 0.82);
    EXPECT_LE(share(QuantizeType::kMxfp8, *values), 1.0);
  }
}

}  // namespace
}  // namespace ballast
