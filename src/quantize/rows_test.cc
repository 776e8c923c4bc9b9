#include "quantize/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/convert.h>

#include "quantize/packing.h"
#include "quantize/reference.h"
#include "tests/support/coded_rows.h"
#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::Coded;
using test::coded_by_reference;
using test::dequantize;
using test::instruction_sets;
using test::OnlyInstructionSet;
using test::quantize;
using test::round_to;

constexpr unsigned kBits[] = {2, 3, 4, 5, 6, 8};
constexpr unsigned kGroupSizes[] = {32, 64, 128, 256};
constexpr QuantizeMethod kMethods[] = {QuantizeMethod::kRtn, QuantizeMethod::kSearch, QuantizeMethod::kHqq};

Coded quantize(QuantizeMethod method, const RowFormat& format, const std::vector<float>& rows,
               std::span<const float> importance = {}) {
  return quantize(method, format, DType::kF32, std::as_bytes(std::span(rows)), importance);
}

Coded by_reference(QuantizeMethod method, const RowFormat& format, const std::vector<float>& rows,
                   std::span<const float> importance) {
  return coded_by_reference(format, rows, importance, [&](auto values, auto weights, auto codes) {
    return quantize_by_reference(method, format, values, weights, codes);
  });
}

// Groups of all kinds: normal, with outliers, constant, zero, tiny, large, of one sign, far from 0, on a coarse grid.
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
      case 3: values[i] = value * 1e-6F; break;
      case 4: values[i] = value * 1e5F; break;
      case 5: values[i] = std::abs(value); break;
      case 6: values[i] = -std::abs(value) - 0.5F; break;
      case 7: values[i] = 5 + value * 0.1F; break;
      case 8: values[i] = static_cast<float>(static_cast<int>(random() % 9) - 4) * 0.25F; break;
      case 9: values[i] = i % group_size == 3 ? 1.0F : 0.0F; break;
      default: values[i] = value; break;
    }
    values[i] = round_to(values[i], dtype);
  }
  return values;
}

TEST(QuantizeRows, EveryInstructionSetGivesTheReferencesBytes) {
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (const QuantizeMethod method : kMethods) {
      for (const unsigned bits : kBits) {
        for (const unsigned group_size : kGroupSizes) {
          for (const auto& [affine, parameters] :
               {std::pair(Affine::kScaleBias, DType::kF32), std::pair(Affine::kScaleBias, DType::kF16),
                std::pair(Affine::kScaleBias, DType::kBF16), std::pair(Affine::kScaleZero, DType::kBF16),
                std::pair(Affine::kScaleCode, DType::kF32), std::pair(Affine::kScaleCode, DType::kBF16),
                std::pair(Affine::kScaleMiddle, DType::kF16), std::pair(Affine::kScaleMiddle, DType::kF32)}) {
            if (has_whole_zero(affine) && method == QuantizeMethod::kHqq) continue;
            const RowFormat format{
                .columns = group_size * 4, .bits = bits, .group_size = group_size, .affine = affine, .parameters = parameters};
            const std::vector<float> rows = mixed_values(format.columns * 6, group_size, parameters);
            ASSERT_TRUE(quantize(method, format, rows).same_bytes(by_reference(method, format, rows, {})))
                << hwy::TargetName(target) << ", method " << static_cast<int>(method) << ", " << bits << " bits, groups of "
                << group_size << ", affine " << static_cast<int>(affine) << ", " << name(parameters);
          }
        }
      }
    }
  }
}

TEST(QuantizeRows, ImportanceAndRestsGiveTheReferencesBytes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 4);
  for (const std::uint64_t columns : {64U, 100U, 33U, 7U, 2048U + 17U, 5000U}) {
    std::vector<float> importance(columns);
    for (float& weight : importance) weight = uniform(random);
    for (const QuantizeMethod method : kMethods) {
      const RowFormat format{
          .columns = columns, .bits = 3, .group_size = 64, .affine = Affine::kScaleZero, .parameters = DType::kBF16};
      const std::vector<float> rows = mixed_values(columns * 5, 64, DType::kF32);
      for (const std::int64_t target : instruction_sets()) {
        const OnlyInstructionSet only(target);
        EXPECT_TRUE(quantize(method, format, rows).same_bytes(by_reference(method, format, rows, {}))) << columns;
        EXPECT_TRUE(quantize(method, format, rows, importance).same_bytes(by_reference(method, format, rows, importance)))
            << columns << " with importance";
      }
    }
  }
}

// A row of any length is one group; zero points are codes.
TEST(QuantizeRows, WholeRowsGiveTheReferencesBytes) {
  for (const std::uint64_t columns : {64U, 100U, 33U, 2048U + 17U, 5000U}) {
    for (const Affine affine : {Affine::kScaleCode, Affine::kScaleMiddle}) {
      for (const unsigned bits : {2U, 4U, 7U, 8U}) {
        const RowFormat format{
            .columns = columns, .bits = bits, .group_size = padded_group_size(static_cast<unsigned>(columns)), .affine = affine};
        const std::vector<float> rows = mixed_values(columns * 4, columns, DType::kBF16);
        for (const std::int64_t target : instruction_sets()) {
          const OnlyInstructionSet only(target);
          for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kSearch}) {
            EXPECT_TRUE(quantize(method, format, rows).same_bytes(by_reference(method, format, rows, {})))
                << columns << " " << bits;
          }
        }
      }
    }
  }
}

TEST(QuantizeRows, DecodedRowsHaveTheSameFigures) {
  for (const std::uint64_t columns : {256U, 300U, 4096U}) {
    const RowFormat format{.columns = columns, .bits = 4, .group_size = 32, .affine = Affine::kScaleMiddle};
    const std::vector<float> rows = mixed_values(columns * 7, 32, DType::kBF16);
    const Coded coded = quantize(QuantizeMethod::kSearch, format, rows);
    const QualitySums again =
        compare_decoded_rows(format, DType::kF32, std::as_bytes(std::span(rows)), dequantize(format, coded));
    EXPECT_EQ(again.weights, coded.sums.weights);
    EXPECT_EQ(again.cross, coded.sums.cross);
    EXPECT_EQ(again.error, coded.sums.error);
    EXPECT_EQ(again.max_error, coded.sums.max_error);
  }
}

// Scales and codes of compressed-tensors 0.20: amax / 7.5, and range / 15.
TEST(QuantizeRows, WholeZerosRoundToNearestAsCompressedTensors) {
  std::vector<float> row(32);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i) * 0.25F - 3.75F;  // -3.75 … 4
  const RowFormat middle{.columns = 32, .bits = 4, .group_size = 32, .affine = Affine::kScaleMiddle, .parameters = DType::kF32};
  const Coded symmetric = quantize(QuantizeMethod::kRtn, middle, row);
  EXPECT_EQ(symmetric.scales, std::vector<float>{4 / 7.5F});
  EXPECT_EQ(symmetric.offsets, std::vector<float>{8});
  RowFormat any = middle;
  any.affine = Affine::kScaleCode;
  const Coded asymmetric = quantize(QuantizeMethod::kRtn, any, row);
  EXPECT_EQ(asymmetric.scales, std::vector<float>{7.75F / 15});
  EXPECT_EQ(asymmetric.offsets, std::vector<float>{7});
}

TEST(QuantizeRows, FiguresAreThoseOfWhatIsReadBackOnEveryInstructionSet) {
  for (const std::uint64_t columns : {256U, 300U, 4096U}) {
    const RowFormat format{.columns = columns, .bits = 4, .group_size = 64, .affine = Affine::kScaleBias};
    const std::vector<float> rows = mixed_values(columns * 7, 64, DType::kBF16);
    const Coded first = quantize(QuantizeMethod::kSearch, format, rows);
    const std::vector<float> back = dequantize(format, first);
    double weights = 0;
    double cross = 0;
    double error = 0;
    double worst = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double gap = static_cast<double>(back[i]) - static_cast<double>(rows[i]);
      weights += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
      cross += static_cast<double>(rows[i]) * gap;
      error += gap * gap;
      worst = std::max(worst, std::abs(gap));
    }
    EXPECT_EQ(first.sums.count, rows.size());
    EXPECT_NEAR(first.sums.weights / weights, 1, 1e-5);
    EXPECT_NEAR(first.sums.cross, cross, 1e-5 * weights);
    EXPECT_NEAR(first.sums.error / error, 1, 1e-5);
    EXPECT_NEAR(first.sums.max_error / worst, 1, 1e-5);
    for (const std::int64_t target : instruction_sets()) {
      const OnlyInstructionSet only(target);
      const QualitySums again =
          compare_rows(format, DType::kF32, std::as_bytes(std::span(rows)), first.packed, first.scales, first.offsets);
      EXPECT_EQ(again.weights, first.sums.weights) << hwy::TargetName(target);
      EXPECT_EQ(again.cross, first.sums.cross);
      EXPECT_EQ(again.error, first.sums.error);
      EXPECT_EQ(again.max_error, first.sums.max_error);
    }
  }
}

// One row of two groups by hand: 4 bits, codes 0 … 15.
TEST(QuantizeRows, RoundToNearestGoldenBytes) {
  std::vector<float> row(64);
  for (std::size_t i = 0; i < 32; ++i) row[i] = static_cast<float>(i % 16) * 0.5F - 2;  // -2 … 5.5
  for (std::size_t i = 32; i < 64; ++i) row[i] = -static_cast<float>(i % 16) * 0.25F;   // -3.75 … 0
  const RowFormat format{.columns = 64, .bits = 4, .group_size = 32};
  const Coded coded = quantize(QuantizeMethod::kRtn, format, row);
  EXPECT_EQ(coded.scales, (std::vector<float>{-0.5F, 0.25F}));
  EXPECT_EQ(coded.offsets, (std::vector<float>{5.5F, -3.75F}));
  std::string hex;
  for (const std::byte byte : coded.packed) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  EXPECT_EQ(hex, "efcdab8967452301efcdab8967452301efcdab8967452301efcdab8967452301");
  EXPECT_EQ(dequantize(format, coded), row);
  EXPECT_EQ(coded.sums.error, 0);
}

TEST(QuantizeRows, ReadsEveryDtypeThatHoldsNumbers) {
  const RowFormat format{.columns = 96, .bits = 8, .group_size = 32, .affine = Affine::kScaleZero};
  std::vector<float> rows(96 * 3);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(static_cast<int>(i % 13) - 6);  // in F8 and I8, too
  const Coded expected = quantize(QuantizeMethod::kSearch, format, rows);
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8, DType::kI64}) {
    std::vector<std::byte> bytes(rows.size() * bits(dtype) / 8);
    ASSERT_TRUE(convert_values(DType::kF32, std::as_bytes(std::span(rows)), dtype, bytes));
    const Coded coded = quantize(QuantizeMethod::kSearch, format, dtype, bytes);
    EXPECT_TRUE(coded.same_bytes(expected)) << name(dtype);
    EXPECT_EQ(coded.sums.error, expected.sums.error) << name(dtype);
  }
}

TEST(QuantizeRows, OneValueAndZerosAreKeptExactly) {
  for (const Affine affine : {Affine::kScaleBias, Affine::kScaleZero}) {
    for (const QuantizeMethod method : kMethods) {
      const RowFormat format{.columns = 64, .bits = 2, .group_size = 64, .affine = affine};
      for (const float value : {0.0F, 1.0F, -0.15625F, 3e-5F}) {
        const std::vector<float> row(64, round_to(value, DType::kBF16));
        EXPECT_EQ(dequantize(format, quantize(method, format, row)), row) << value;
      }
    }
  }
}

struct Distribution {
  std::string name;
  std::vector<float> values;
};

std::vector<Distribution> distributions() {
  constexpr std::size_t kRows = 256;
  constexpr std::size_t kColumns = 1024;
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 0.02);
  std::student_t_distribution<double> student(5);
  std::vector<Distribution> made{{"gauss", {}}, {"student", {}}, {"outliers", {}}};
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    made[0].values.push_back(static_cast<float>(normal(random)));
    made[1].values.push_back(static_cast<float>(0.02 * student(random)));
    made[2].values.push_back(static_cast<float>(normal(random) * (i % kColumns % 100 == 17 ? 8 : 1)));
  }
  for (Distribution& distribution : made) {
    for (float& value : distribution.values) value = round_to(value, DType::kBF16);
  }
  return made;
}

double relative_rmse(QuantizeMethod method, RowFormat format, const std::vector<float>& values) {
  format.columns = 1024;
  return quality_of(quantize(method, format, values).sums).relative_rmse;
}

TEST(QuantizeRows, SearchIsAsGoodAsItCanBe) {
  const auto made = distributions();
  for (const Affine affine : {Affine::kScaleBias, Affine::kScaleZero}) {
    for (const auto& [bits, most] : {std::pair(2U, 0.325), std::pair(3U, 0.168), std::pair(4U, 0.083), std::pair(8U, 0.0054)}) {
      EXPECT_LE(relative_rmse(QuantizeMethod::kSearch, {.bits = bits, .affine = affine}, made[0].values), most) << bits;
    }
    for (const Distribution& distribution : made) {
      for (const unsigned bits : kBits) {
        const RowFormat format{.bits = bits, .affine = affine};
        const double search = relative_rmse(QuantizeMethod::kSearch, format, distribution.values);
        const double rtn = relative_rmse(QuantizeMethod::kRtn, format, distribution.values);
        const double hqq = relative_rmse(QuantizeMethod::kHqq, format, distribution.values);
        EXPECT_LE(search, rtn) << distribution.name << ", " << bits << " bits";
        EXPECT_LE(search, hqq) << distribution.name << ", " << bits << " bits";
      }
    }
  }
}

}  // namespace
}  // namespace ballast
