#include "quantize/hessian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/fail.h"
#include "tests/support/files.h"
#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::fails;
using test::instruction_sets;
using test::OnlyInstructionSet;

struct Matrix {
  std::size_t size;
  std::vector<float> values;

  explicit Matrix(std::size_t columns) : size(columns), values(columns * columns) {
    for (std::size_t i = 0; i < size; ++i) at(i, i) = 1;
  }
  float& at(std::size_t row, std::size_t column) { return values[row * size + column]; }
  float at(std::size_t row, std::size_t column) const { return values[row * size + column]; }

  Result<Feedback> feedback(unsigned threads = 1) const {
    const auto read = [this](std::uint64_t first_row, std::span<float> rows) -> Result<void> {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first_row * size), rows.size(), rows.begin());
      return {};
    };
    return Feedback::make(size, read, threads);
  }
};

// XᵀX of inputs that are alike, some of them large.
Matrix correlated(std::size_t size) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> inputs(size);
  std::vector<double> sums(size * size);
  for (std::size_t sample = 0; sample < 2 * size + 3; ++sample) {
    const double shared = normal(random);
    for (std::size_t i = 0; i < size; ++i) inputs[i] = (normal(random) + shared) * (i % 50 == 7 ? 20 : 1);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) sums[i * size + j] += inputs[i] * inputs[j];
    }
  }
  Matrix matrix(size);
  std::ranges::transform(sums, matrix.values.begin(), [](double sum) { return static_cast<float>(sum); });
  return matrix;
}

double mean_diagonal(const Matrix& matrix) {
  double sum = 0;
  for (std::size_t i = 0; i < matrix.size; ++i) sum += static_cast<double>(matrix.at(i, i));
  return sum / static_cast<double>(matrix.size);
}

// U as the weights tell it.
double upper(const Feedback& feedback, std::size_t row, std::size_t column) {
  if (row == column) return 1;
  return row < column ? static_cast<double>(feedback.weights(column)[row]) : 0;
}

void expect_same(const Feedback& a, const Feedback& b) {
  ASSERT_EQ(a.columns(), b.columns());
  EXPECT_TRUE(std::ranges::equal(a.pivots(), b.pivots()));
  for (std::uint64_t column = 0; column < a.columns(); ++column) {
    ASSERT_TRUE(std::equal(a.weights(column), a.weights(column) + column, b.weights(column))) << column;
  }
}

TEST(Feedback, FactorsMultiplyToTheDampedMatrix) {
  for (const std::size_t size : {1U, 2U, 63U, 64U, 65U, 200U}) {
    const Matrix matrix = correlated(size);
    const auto feedback = matrix.feedback();
    ASSERT_TRUE(feedback) << feedback.error().message;
    const double mean = mean_diagonal(matrix);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) {
        double product = 0;
        for (std::size_t k = std::max(i, j); k < size; ++k) {
          product += upper(*feedback, i, k) * static_cast<double>(feedback->pivots()[k]) * upper(*feedback, j, k);
        }
        const double expected =
            static_cast<double>(matrix.at(i, j)) / mean + (i == j ? static_cast<double>(feedback->damping()[i]) : 0);
        const double most = std::sqrt(static_cast<double>(matrix.at(i, i)) * static_cast<double>(matrix.at(j, j))) / mean;
        ASSERT_NEAR(product, expected, 1e-5 * most) << size << " columns, " << i << ", " << j;
      }
    }
  }
}

// [[4, 2], [2, 2]] has the mean 3: 4/3, 2/3 and 2/3, with 0.02 of their roots and a ten-thousandth of 4/3, the upper median,
// added to the diagonal.
TEST(Feedback, OfTwoColumnsByHand) {
  Matrix matrix(2);
  matrix.values = {4, 2, 2, 2};
  const auto feedback = matrix.feedback();
  ASSERT_TRUE(feedback);
  const double last = 2.0 / 3 + 0.02 * std::sqrt(2.0 / 3) + 4e-4 / 3;
  EXPECT_NEAR(feedback->pivots()[1], last, 1e-6);
  EXPECT_NEAR(feedback->weights(1)[0], 2.0 / 3 / last, 1e-6);
  EXPECT_NEAR(feedback->pivots()[0], 4.0 / 3 + 0.02 * std::sqrt(4.0 / 3) + 4e-4 / 3 - 4.0 / 9 / last, 1e-6);
}

TEST(Feedback, IsTheSameForAllThreadsAndInstructionSets) {
  const Matrix matrix = correlated(333);
  const auto expected = matrix.feedback();
  ASSERT_TRUE(expected);
  for (const unsigned threads : {2U, 3U, 0U}) expect_same(*matrix.feedback(threads), *expected);
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    expect_same(*matrix.feedback(), *expected);
  }
}

TEST(Feedback, DoesNotDependOnTheUnitOfTheInputs) {
  const Matrix matrix = correlated(70);
  for (const float factor : {0x1p80F, 0x1p-80F}) {
    Matrix scaled = matrix;
    for (float& value : scaled.values) value *= factor;
    const auto feedback = scaled.feedback();
    ASSERT_TRUE(feedback) << feedback.error().message;
    expect_same(*feedback, *matrix.feedback());
  }
}

TEST(Feedback, InputsThatAreAlwaysZeroStayByThemselves) {
  Matrix matrix = correlated(80);
  for (std::size_t i = 0; i < 80; ++i) matrix.at(i, 70) = matrix.at(70, i) = 0;
  const auto feedback = matrix.feedback();
  ASSERT_TRUE(feedback) << feedback.error().message;
  EXPECT_EQ(feedback->pivots()[70], feedback->damping()[70]);
  EXPECT_GT(feedback->damping()[70], 0.0F);
  EXPECT_EQ(std::count(feedback->weights(70), feedback->weights(70) + 70, 0.0F), 70);
}

// One direction only: without the damping, all pivots but one would be 0.
TEST(Feedback, SamplesFewerThanColumnsAreEnough) {
  Matrix matrix(100);
  std::ranges::fill(matrix.values, 5.0F);
  EXPECT_TRUE(matrix.feedback());
}

TEST(Feedback, ReadsAllRowsInTheirOrderSomeAtATime) {
  const Matrix matrix = correlated(150);
  std::uint64_t next = 0;
  std::size_t most = 0;
  const auto read = [&](std::uint64_t first_row, std::span<float> rows) -> Result<void> {
    EXPECT_EQ(first_row, next);
    EXPECT_EQ(rows.size() % 150, 0U);
    next += rows.size() / 150;
    most = std::max(most, rows.size() / 150);
    std::copy_n(matrix.values.begin() + static_cast<std::ptrdiff_t>(first_row * 150), rows.size(), rows.begin());
    return {};
  };
  EXPECT_TRUE(Feedback::make(150, read, 1));
  EXPECT_EQ(next, 150U);
  EXPECT_LE(most, 64U);
}

TEST(Feedback, TakesTwoBytesForEachValue) {
  EXPECT_GE(Feedback::bytes(4096), 2U * 4096 * 4096);
  EXPECT_LE(Feedback::bytes(4096), 2U * 4096 * 4096 + (70U + Feedback::kNear) * 4096 * 4);
  EXPECT_GT(Feedback::bytes(1), 0U);
}

TEST(Feedback, PassesOnWhatReadingFailsWith) {
  const auto read = [](std::uint64_t, std::span<float>) -> Result<void> { return fail(Errc::kIo, "gone"); };
  EXPECT_TRUE(fails(Feedback::make(10, read, 1), Errc::kIo, "gone"));
}

TEST(Feedback, RefusesNan) {
  Matrix matrix(70);
  matrix.at(66, 3) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "nan in row 66, column 3"));
  matrix.at(2, 69) = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "-inf in row 2, column 69"));
}

TEST(Feedback, RefusesNegativeSquares) {
  Matrix matrix(70);
  matrix.at(68, 68) = -0.5F;
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "-0.5 on the diagonal in row 68"));
}

TEST(Feedback, RefusesWhatIsNotSymmetric) {
  Matrix matrix(70);
  matrix.at(3, 65) = 0.25F;
  matrix.at(65, 3) = 0.5F;
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "not symmetric: 0.5 in row 65, column 3, but 0.25 in row 3, column 65"));
  matrix.at(3, 65) = 0.4995F;
  EXPECT_TRUE(matrix.feedback());
}

TEST(Feedback, RefusesMoreThanTheDiagonalAllows) {
  Matrix matrix(70);
  matrix.at(3, 3) = 4;
  matrix.at(3, 65) = matrix.at(65, 3) = -2.5F;
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "-2.5 in row 65, column 3 is more than the diagonal allows, 2"));
  matrix.at(3, 65) = matrix.at(65, 3) = -2.0F;
  EXPECT_TRUE(matrix.feedback());
}

// Three columns that are all opposite to one another: no inputs do that.
TEST(Feedback, RefusesWhatIsNotPositiveSemidefinite) {
  Matrix matrix(3);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) matrix.at(i, j) = i == j ? 1 : -0.75F;
  }
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "not positive semidefinite: pivot -3.1450238 in row 0"));
}

TEST(Feedback, RefusesZeros) {
  Matrix matrix(70);
  std::ranges::fill(matrix.values, 0.0F);
  EXPECT_TRUE(fails(matrix.feedback(), Errc::kCorrupt, "all 70 values on the diagonal are 0"));
}

}  // namespace
}  // namespace ballast
