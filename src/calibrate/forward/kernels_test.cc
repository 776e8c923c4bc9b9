#include "calibrate/forward/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

constexpr std::size_t kSizes[] = {1, 3, 16, 37, 512};

std::vector<float> random_floats(std::size_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Calls check(values) with every size, on every instruction set.
template <class Check>
void for_all(float deviation, Check&& check) {
  for (const std::int64_t target : test::instruction_sets()) {
    const test::OnlyInstructionSet only(target);
    for (const std::size_t size : kSizes) {
      SCOPED_TRACE(testing::Message() << size << " values, " << hwy::TargetName(target));
      check(random_floats(size, deviation, static_cast<unsigned>(size)));
    }
  }
}

TEST(ForwardKernels, RmsNormDividesByTheRootMeanSquare) {
  for_all(3, [](const std::vector<float>& values) {
    const std::vector<float> weight = random_floats(values.size(), 1, 9);
    std::vector<float> out(values.size());
    rms_norm(values, weight.data(), 1e-5F, out.data());
    double squares = 0;
    for (const double value : values) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(values.size()) + 1e-5);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(out[i], static_cast<double>(values[i]) * factor * weight[i], 1e-5);
    }
  });
}

TEST(ForwardKernels, SoftmaxAddsUpToOne) {
  for_all(20, [](const std::vector<float>& values) {
    std::vector<float> out = values;
    softmax(out);
    double sum = 0;
    for (const double value : values) sum += std::exp(value);
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(out[i], std::exp(static_cast<double>(values[i])) / sum, 1e-6);
      total += out[i];
    }
    EXPECT_NEAR(total, 1, 1e-5);
  });
}

TEST(ForwardKernels, ActivationsMultiplyTheOtherValues) {
  for_all(30, [](std::vector<float> values) {
    values[0] = -200;  // its exponential is infinite
    const std::vector<float> up = random_floats(values.size(), 1, 5);
    std::vector<float> silu = values;
    std::vector<float> gelu = values;
    multiply_silu(silu, up.data());
    multiply_gelu_tanh(gelu, up.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = values[i];
      EXPECT_NEAR(silu[i], x / (1 + std::exp(-x)) * up[i], 1e-5 * (1 + std::abs(x)));
      const double tanh = std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x));
      EXPECT_NEAR(gelu[i], x * (1 + tanh) / 2 * up[i], 1e-5 * (1 + std::abs(x)));
    }
  });
}

TEST(ForwardKernels, AnyNanOrInfinityIsFound) {
  for_all(1, [](std::vector<float> values) {
    EXPECT_TRUE(all_finite(values));
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t at : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
        const float before = std::exchange(values[at], bad);
        EXPECT_FALSE(all_finite(values)) << at;
        values[at] = before;
      }
    }
  });
}

TEST(ForwardKernels, LogitsInPartsGiveTheDivergenceOfTheWhole) {
  for_all(5, [](const std::vector<float>& logits) {
    std::vector<float> others = random_floats(logits.size(), 5, 77);
    LogitSums model;
    LogitSums other;
    for (std::size_t at = 0; at < logits.size(); at += 16) {
      const std::size_t count = std::min<std::size_t>(16, logits.size() - at);
      add_logits({logits.data() + at, count}, others.data() + at, static_cast<std::uint32_t>(at), model);
      add_logits({others.data() + at, count}, static_cast<std::uint32_t>(at), other);
    }
    double sum = 0;
    double other_sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      sum += std::exp(static_cast<double>(logits[i]));
      other_sum += std::exp(static_cast<double>(others[i]));
    }
    double expected = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double gap = logits[i] - std::log(sum) - (others[i] - std::log(other_sum));
      expected += std::exp(static_cast<double>(logits[i])) / sum * gap;
    }
    EXPECT_NEAR(model.log_sum(), std::log(sum), 1e-5);
    EXPECT_NEAR(model.gaps / model.exponentials - model.log_sum() + other.log_sum(), expected, 1e-4);
    EXPECT_EQ(model.first, std::ranges::max_element(logits) - logits.begin());
  });
}

TEST(ForwardKernels, TheFirstOfEqualLogitsIsTheMostLikely) {
  LogitSums sums;
  add_logits(std::vector<float>{1, 3, 3}, 0, sums);
  add_logits(std::vector<float>{3, 2}, 3, sums);
  EXPECT_EQ(sums.first, 1U);
}

}  // namespace
}  // namespace ballast
