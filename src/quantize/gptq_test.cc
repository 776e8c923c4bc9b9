#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/convert.h>

#include "quantize/packing.h"
#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::instruction_sets;
using test::OnlyInstructionSet;
using testing::FloatNear;
using testing::Pointwise;

using Doubles = std::vector<double>;

// Inputs of a layer that are alike: each is a mix of a few shared signals and one of its own. One of 64 is ten times as large, so
// that these have half of all squares.
class Inputs {
 public:
  explicit Inputs(std::size_t columns) : columns_(columns), mix_(kShared * columns), sizes_(columns) {
    for (float& share : mix_) share = 0.15F * normal_(random_);
    for (std::size_t i = 0; i < columns; ++i) sizes_[i] = i % 64 == 17 ? 10.0F : std::exp(0.5F * normal_(random_));
  }

  // The mean of XᵀX over new samples.
  std::vector<float> hessian(std::size_t samples) {
    std::vector<float> sums(columns_ * columns_);
    std::vector<float> input(columns_);
    for (std::size_t sample = 0; sample < samples; ++sample) {
      for (float& value : input) value = 0.6F * normal_(random_);
      for (std::size_t k = 0; k < kShared; ++k) {
        const float signal = normal_(random_);
        for (std::size_t i = 0; i < columns_; ++i) input[i] += signal * mix_[k * columns_ + i];
      }
      for (std::size_t i = 0; i < columns_; ++i) input[i] *= sizes_[i];
      for (std::size_t i = 0; i < columns_; ++i) {
        for (std::size_t j = 0; j <= i; ++j) sums[i * columns_ + j] += input[i] * input[j];
      }
    }
    for (std::size_t i = 0; i < columns_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        sums[i * columns_ + j] /= static_cast<float>(samples);
        sums[j * columns_ + i] = sums[i * columns_ + j];
      }
    }
    return sums;
  }

 private:
  static constexpr std::size_t kShared = 32;

  std::size_t columns_;
  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
  std::vector<float> mix_;
  std::vector<float> sizes_;
};

std::vector<float> normal_weights(std::size_t count) {
  std::mt19937 random(23);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> weights(count);
  for (float& weight : weights) weight = normal(random);
  return weights;
}

Feedback feedback_of(const std::vector<float>& hessian) {
  const auto columns = static_cast<std::size_t>(std::sqrt(static_cast<double>(hessian.size())));
  const auto read = [&](std::uint64_t first_row, std::span<float> rows) -> Result<void> {
    std::copy_n(hessian.begin() + static_cast<std::ptrdiff_t>(first_row * columns), rows.size(), rows.begin());
    return {};
  };
  auto feedback = Feedback::make(columns, read, 1);
  EXPECT_TRUE(feedback) << feedback.error().message;
  return *std::move(feedback);
}

// As Feedback has it: divided by the mean diagonal.
Doubles normalized(const std::vector<float>& hessian) {
  const auto columns = static_cast<std::size_t>(std::sqrt(static_cast<double>(hessian.size())));
  double mean = 0;
  for (std::size_t i = 0; i < columns; ++i) mean += static_cast<double>(hessian[i * columns + i]) / static_cast<double>(columns);
  Doubles result;
  for (const float value : hessian) result.push_back(static_cast<double>(value) / mean);
  return result;
}

Doubles damped(const std::vector<float>& hessian, const Feedback& feedback) {
  Doubles result = normalized(hessian);
  const std::size_t columns = feedback.columns();
  for (std::size_t i = 0; i < columns; ++i) result[i * columns + i] += static_cast<double>(feedback.damping()[i]);
  return result;
}

struct Coded {
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;

  Coded(const RowFormat& format, std::size_t rows)
      : packed(rows * format.packed_bytes()), scales(rows * format.groups()), offsets(rows * format.groups()) {}

  CodedRows rows(const RowFormat& format, std::size_t first, std::size_t count) {
    return {.packed = std::span(packed).subspan(first * format.packed_bytes(), count * format.packed_bytes()),
            .scales = std::span(scales).subspan(first * format.groups(), count * format.groups()),
            .offsets = std::span(offsets).subspan(first * format.groups(), count * format.groups())};
  }
  std::vector<std::uint8_t> codes(const RowFormat& format) const {
    std::vector<std::uint8_t> result;
    for (std::size_t begin = 0; begin < packed.size(); begin += format.packed_bytes()) {
      result.resize(result.size() + format.columns);
      unpack_codes(format.bits, packed.data() + begin, std::span(result).last(format.columns));
    }
    return result;
  }
  bool operator==(const Coded&) const = default;
};

std::size_t row_count(const RowFormat& format, const std::vector<float>& weights) { return weights.size() / format.columns; }

struct Gptq {
  std::size_t block = 1000;  // rows
  unsigned passes = kRefinements;
  GptqSums* sums = nullptr;
};

Coded gptq(const RowFormat& format, const std::vector<float>& weights, const Feedback& feedback, const Gptq& how = {}) {
  const std::size_t rows = row_count(format, weights);
  Coded coded(format, rows);
  for (std::size_t first = 0; first < rows; first += how.block) {
    const std::size_t count = std::min(how.block, rows - first);
    const auto part = std::span(weights).subspan(first * format.columns, count * format.columns);
    const GptqSums made =
        gptq_rows(format, DType::kF32, std::as_bytes(part), feedback, coded.rows(format, first, count), {}, how.passes);
    if (how.sums != nullptr) *how.sums = made;
  }
  return coded;
}

Coded plain(QuantizeMethod method, const RowFormat& format, const std::vector<float>& weights,
            std::span<const float> importance = {}) {
  const std::size_t rows = row_count(format, weights);
  Coded coded(format, rows);
  quantize_rows(method, format, DType::kF32, std::as_bytes(std::span(weights)), importance, coded.rows(format, 0, rows));
  return coded;
}

std::vector<float> decoded(const RowFormat& format, const Coded& coded) {
  std::vector<float> values(coded.packed.size() / format.packed_bytes() * format.columns);
  dequantize_rows(format, coded.packed, coded.scales, coded.offsets, values);
  return values;
}

std::vector<float> errors_of(const RowFormat& format, const std::vector<float>& weights, const Coded& coded) {
  std::vector<float> errors = decoded(format, coded);
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] = weights[i] - errors[i];
  return errors;
}

// The sum of e H eᵀ over all rows.
template <class Value>
double cost(const std::vector<Value>& hessian, const std::vector<float>& errors, std::size_t columns) {
  double sum = 0;
  for (std::size_t begin = 0; begin < errors.size(); begin += columns) {
    for (std::size_t i = 0; i < columns; ++i) {
      double product = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        product += static_cast<double>(hessian[i * columns + j]) * static_cast<double>(errors[begin + j]);
      }
      sum += product * static_cast<double>(errors[begin + i]);
    }
  }
  return sum;
}

std::vector<RowFormat> formats(std::uint64_t columns) {
  std::vector<RowFormat> made;
  for (const unsigned bits : {2U, 3U, 4U, 8U}) {
    for (const unsigned group_size : {32U, 64U, 256U}) {
      if (columns % group_size == 0) made.push_back({.columns = columns, .bits = bits, .group_size = group_size});
      made.push_back({.columns = columns, .bits = bits, .group_size = group_size, .affine = Affine::kScaleZero});
    }
  }
  return made;
}

// Columns 0 and 1 are alike and their weights lie between the codes, which stand for multiples of a half. The mean diagonal is
// 9.4375, so that U_01 = 0.95 / 1.094: 2.2 becomes 2, for which 3.2 counts as 3.2 + 0.2 · 0.868 = 3.37, and becomes 3.5.
TEST(Gptq, OneColumnCompensatesForAnother) {
  constexpr std::size_t kColumns = 32;
  std::vector<float> hessian(kColumns * kColumns);
  std::vector<float> importance(kColumns);
  std::vector<float> weights(kColumns);
  for (std::size_t i = 0; i < kColumns; ++i) {
    importance[i] = hessian[i * kColumns + i] = i < 2 ? 1 : 10;
    weights[i] = static_cast<float>(i % 16) / 2;
  }
  hessian[1] = hessian[kColumns] = 0.95F;
  weights[0] = 2.2F;
  weights[1] = 3.2F;
  const RowFormat format{.columns = kColumns, .bits = 4, .group_size = 32};
  std::vector<float> expected = weights;
  expected[0] = 2;
  expected[1] = 3;
  EXPECT_THAT(decoded(format, plain(QuantizeMethod::kSearch, format, weights, importance)),
              Pointwise(FloatNear(0.01F), expected));
  expected[1] = 3.5F;
  EXPECT_THAT(decoded(format, gptq(format, weights, feedback_of(hessian), {.passes = 0})), Pointwise(FloatNear(0.01F), expected));
}

// The inverse, by Gauss and Jordan.
Doubles inverse(Doubles matrix, std::size_t size) {
  Doubles result(size * size);
  for (std::size_t i = 0; i < size; ++i) result[i * size + i] = 1;
  for (std::size_t k = 0; k < size; ++k) {
    const double pivot = matrix[k * size + k];
    for (std::size_t j = 0; j < size; ++j) {
      matrix[k * size + j] /= pivot;
      result[k * size + j] /= pivot;
    }
    for (std::size_t i = 0; i < size; ++i) {
      const double factor = matrix[i * size + k];
      if (i == k || factor == 0) continue;
      for (std::size_t j = 0; j < size; ++j) {
        matrix[i * size + j] -= factor * matrix[k * size + j];
        result[i * size + j] -= factor * result[k * size + j];
      }
    }
  }
  return result;
}

// The upper triangular R with RᵀR = matrix.
Doubles cholesky(const Doubles& matrix, std::size_t size) {
  Doubles result(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = i; j < size; ++j) {
      double rest = matrix[i * size + j];
      for (std::size_t k = 0; k < i; ++k) rest -= result[k * size + i] * result[k * size + j];
      result[i * size + j] = i == j ? std::sqrt(rest) : rest / result[i * size + i];
    }
  }
  return result;
}

// GPTQ as in the paper, with the inverse of H, in double: how far the furthest weight was from its code when its turn came, in
// steps, given the parameters and the codes. At most a half for weights within the range.
double furthest_from_its_code(const RowFormat& format, const std::vector<float>& weights, const Doubles& hessian,
                              const Coded& coded) {
  const std::size_t columns = format.columns;
  const Doubles root = cholesky(inverse(hessian, columns), columns);
  const std::vector<std::uint8_t> codes = coded.codes(format);
  const double steps = std::pow(2.0, format.bits) - 1;
  double furthest = 0;
  for (std::size_t row = 0; row < row_count(format, weights); ++row) {
    Doubles rest(weights.begin() + static_cast<std::ptrdiff_t>(row * columns),
                 weights.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns));
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t group = row * format.groups() + i / format.group_size;
      const auto scale = static_cast<double>(coded.scales[group]);
      const auto offset = static_cast<double>(coded.offsets[group]);
      const bool is_mlx = format.affine == Affine::kScaleBias;
      const double place = is_mlx ? (rest[i] - offset) / scale : rest[i] / scale + offset;
      const double code = codes[row * columns + i];
      furthest = std::max(furthest, std::abs(std::clamp(place, 0.0, steps) - code));
      const double value = is_mlx ? code * scale + offset : (code - offset) * scale;
      const double error = (rest[i] - value) / root[i * columns + i];
      for (std::size_t j = i; j < columns; ++j) rest[j] -= error * root[i * columns + j];
    }
  }
  return furthest;
}

Doubles scaled_by(std::span<const float> units, Doubles hessian) {
  for (std::size_t i = 0; i < hessian.size(); ++i) {
    hessian[i] *= static_cast<double>(units[i / units.size()]) * static_cast<double>(units[i % units.size()]);
  }
  return hessian;
}

TEST(Gptq, TakesTheCodesThatTheInverseAsksFor) {
  const std::vector<float> hessian = Inputs(160).hessian(400);
  const Feedback feedback = feedback_of(hessian);
  const std::vector<float> weights = normal_weights(160 * 20);
  for (const RowFormat& format : formats(160)) {
    const double furthest =
        furthest_from_its_code(format, weights, damped(hessian, feedback), gptq(format, weights, feedback, {.passes = 0}));
    EXPECT_LT(furthest, format.bits == 8 ? 0.502 : 0.5002) << format.bits << " bits, groups of " << format.group_size;
    EXPECT_GT(furthest, 0.49);
  }
}

TEST(Gptq, UncorrelatedInputsGiveTheCodesOfSearch) {
  for (const std::uint64_t columns : {256U, 100U}) {
    std::vector<float> hessian(columns * columns);
    for (std::size_t i = 0; i < columns; ++i) hessian[i * columns + i] = 3;
    const Feedback feedback = feedback_of(hessian);
    const std::vector<float> weights = normal_weights(columns * 70);
    for (const RowFormat& format : formats(columns)) {
      EXPECT_EQ(gptq(format, weights, feedback, {.passes = 0}),
                plain(QuantizeMethod::kSearch, format, weights, feedback.pivots()))
          << format.bits << " bits, groups of " << format.group_size;
    }
  }
}

TEST(Gptq, IsTheSameForAllBlocksAndInstructionSets) {
  for (const RowFormat& format : {RowFormat{.columns = 256, .bits = 4, .group_size = 64},
                                  RowFormat{.columns = 300, .bits = 3, .group_size = 128, .affine = Affine::kScaleZero}}) {
    const Feedback feedback = feedback_of(Inputs(format.columns).hessian(500));
    const std::vector<float> weights = normal_weights(format.columns * 67);
    const Coded expected = gptq(format, weights, feedback);
    for (const std::size_t block : {64U, 29U, 1U})
      EXPECT_EQ(gptq(format, weights, feedback, {.block = block}), expected) << block;
    for (const std::int64_t target : instruction_sets()) {
      const OnlyInstructionSet only(target);
      EXPECT_EQ(gptq(format, weights, feedback), expected) << hwy::TargetName(target);
    }
  }
}

TEST(Gptq, MetricsAreThoseOfWhatIsStored) {
  for (const std::uint64_t columns : {256U, 300U}) {
    const std::vector<float> hessian = Inputs(columns).hessian(500);
    const std::vector<float> weights = normal_weights(columns * 70);
    const Feedback feedback = feedback_of(hessian);
    for (const RowFormat& format : formats(columns)) {
      GptqSums sums;
      const Coded coded = gptq(format, weights, feedback, {.sums = &sums});
      const QualitySums quality =
          compare_rows(format, DType::kF32, std::as_bytes(std::span(weights)), coded.packed, coded.scales, coded.offsets);
      EXPECT_EQ(sums.quality.count, quality.count);
      EXPECT_EQ(sums.quality.weights, quality.weights);
      EXPECT_EQ(sums.quality.cross, quality.cross);
      EXPECT_EQ(sums.quality.error, quality.error);
      EXPECT_EQ(sums.quality.max_error, quality.max_error);
      EXPECT_NEAR(sums.output_error / cost(normalized(hessian), errors_of(format, weights, coded), columns), 1, 1e-3);
    }
  }
}

// Scaled columns and inputs that are scaled the other way are the same layer.
TEST(Gptq, ColumnsThatAreScaled) {
  constexpr std::size_t kColumns = 160;
  std::vector<float> units;
  for (std::size_t i = 0; i < kColumns; ++i) units.push_back(std::ldexp(1.0F, static_cast<int>(i * 7 % 5) - 2));
  const std::vector<float> hessian = Inputs(kColumns).hessian(400);
  const std::vector<float> weights = normal_weights(kColumns * 70);
  for (RowFormat format : formats(kColumns)) {
    format.restore = units;
    GptqSums sums;
    const Feedback feedback = feedback_of(hessian);
    const Coded refined = gptq(format, weights, feedback, {.sums = &sums});
    EXPECT_NEAR(sums.output_error / cost(normalized(hessian), errors_of(format, weights, refined), kColumns), 1, 1e-3);
    const Coded coded = gptq(format, weights, feedback, {.passes = 0});
    format.restore = {};
    std::vector<float> scaled = weights;
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] /= units[i % kColumns];
    EXPECT_LT(furthest_from_its_code(format, scaled, scaled_by(units, damped(hessian, feedback)), coded),
              format.bits == 8 ? 0.502 : 0.5002)
        << format.bits << " bits, groups of " << format.group_size;
  }
}

TEST(Gptq, EveryRefinementLowersTheError) {
  const std::vector<float> hessian = Inputs(300).hessian(600);
  const Feedback feedback = feedback_of(hessian);
  const Doubles metric = damped(hessian, feedback);
  const std::vector<float> weights = normal_weights(300 * 20);
  for (const RowFormat& format : formats(300)) {
    double before = std::numeric_limits<double>::infinity();
    double first = 0;
    for (unsigned passes = 0; passes <= 4; ++passes) {
      const Coded coded = gptq(format, weights, feedback, {.passes = passes});
      const double error = cost(metric, errors_of(format, weights, coded), 300);
      EXPECT_LT(error, before * 1.00001) << format.bits << " bits, " << passes << " passes";
      before = error;
      if (passes == 0) first = error;
    }
    EXPECT_LT(before, first * (format.bits <= 4 ? 0.93 : 0.98)) << format.bits << " bits, groups of " << format.group_size;
  }
}

// With one group, nothing else moves after the last pass.
TEST(Gptq, RefiningEndsWhereNoSingleCodeIsBetter) {
  constexpr std::size_t kColumns = 64;
  const std::vector<float> hessian = Inputs(kColumns).hessian(200);
  const Feedback feedback = feedback_of(hessian);
  const Doubles metric = damped(hessian, feedback);
  const std::vector<float> weights = normal_weights(kColumns);
  for (const Affine affine : {Affine::kScaleBias, Affine::kScaleZero}) {
    const RowFormat format{.columns = kColumns, .bits = 3, .group_size = 64, .affine = affine};
    const Coded coded = gptq(format, weights, feedback, {.passes = 50});
    const std::vector<float> errors = errors_of(format, weights, coded);
    const double least = cost(metric, errors, kColumns);
    const std::vector<std::uint8_t> codes = coded.codes(format);
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (const int step : {-1, 1}) {
        if (codes[i] + step < 0 || codes[i] + step > 7) continue;
        std::vector<float> changed = errors;
        changed[i] -= static_cast<float>(step) * coded.scales.front();
        EXPECT_GT(cost(metric, changed, kColumns), least * 0.99999) << i;
      }
    }
  }
}

TEST(Gptq, ReadsOtherDtypes) {
  const Feedback feedback = feedback_of(Inputs(96).hessian(200));
  const RowFormat format{.columns = 96, .bits = 4, .group_size = 32};
  std::vector<float> weights(96 * 3);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(static_cast<int>(i % 13) - 6);
  const Coded expected = gptq(format, weights, feedback);
  for (const DType dtype : {DType::kF64, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    std::vector<std::byte> bytes(weights.size() * bits(dtype) / 8);
    ASSERT_TRUE(convert_values(DType::kF32, std::as_bytes(std::span(weights)), dtype, bytes));
    Coded coded(format, 3);
    gptq_rows(format, dtype, bytes, feedback, coded.rows(format, 0, 3));
    EXPECT_EQ(coded, expected) << name(dtype);
  }
}

TEST(Gptq, NonFiniteWeightsChangeTheMetricsAndTheirRowAlone) {
  const Feedback feedback = feedback_of(Inputs(128).hessian(300));
  const std::vector<float> weights = normal_weights(128 * 3);
  for (const RowFormat& format : formats(128)) {
    const Coded expected = gptq(format, weights, feedback);
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> bad = weights;
      bad[128 + 70] = value;
      GptqSums sums;
      const std::vector<std::uint8_t> codes = gptq(format, bad, feedback, {.sums = &sums}).codes(format);
      EXPECT_FALSE(std::isfinite(sums.quality.weights));
      const std::vector<std::uint8_t> others = expected.codes(format);
      EXPECT_TRUE(std::equal(codes.begin(), codes.begin() + 128, others.begin()));
      EXPECT_TRUE(std::equal(codes.begin() + 256, codes.end(), others.begin() + 256));
    }
  }
}

// What the outputs are off by for inputs that were not there to learn from, with round to nearest for 1.
TEST(Gptq, OutputsAreNearerThanBySearch) {
  constexpr std::size_t kColumns = 512;
  Inputs inputs(kColumns);
  const std::vector<float> hessian = inputs.hessian(2048);
  const std::vector<float> held_out = inputs.hessian(1024);
  const Feedback feedback = feedback_of(hessian);
  std::vector<float> importance;
  for (std::size_t i = 0; i < kColumns; ++i) importance.push_back(hessian[i * kColumns + i]);
  const std::vector<float> weights = normal_weights(kColumns * 32);
  for (const Affine affine : {Affine::kScaleBias, Affine::kScaleZero}) {
    for (const unsigned bits : {2U, 3U, 4U}) {
      const RowFormat format{.columns = kColumns, .bits = bits, .group_size = 64, .affine = affine};
      const auto error = [&](const Coded& coded) {
        return std::sqrt(cost(held_out, errors_of(format, weights, coded), kColumns));
      };
      const double rtn = error(plain(QuantizeMethod::kRtn, format, weights));
      const double weighted = error(plain(QuantizeMethod::kSearch, format, weights, importance)) / rtn;
      const double with_feedback = error(gptq(format, weights, feedback)) / rtn;
      EXPECT_LE(weighted, 0.70) << bits << " bits";
      EXPECT_LE(with_feedback, 0.55) << bits << " bits";
      RecordProperty(fmt::format("{}_bits_{}", bits, affine == Affine::kScaleBias ? "mlx" : "parquet"),
                     fmt::format("weighted {:.3f}, gptq {:.3f}", weighted, with_feedback));
    }
  }
}

}  // namespace
}  // namespace ballast
