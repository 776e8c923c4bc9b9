#include "quantize/guessed_importance.h"

#include <bit>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

namespace ballast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::IsEmpty;

std::vector<float> guess(std::size_t columns, const std::vector<float>& values) {
  GuessedImportance guessed(columns);
  guessed.add(DType::kF32, std::as_bytes(std::span(values)));
  return guessed.importance();
}

TEST(GuessedImportance, ColumnsThatAreAlikeCountAlike) { EXPECT_THAT(guess(3, {1, -1, 1, /**/ -1, 1, 1}), Each(FloatEq(1))); }

// Mean squares of 1, 4 and 1/4 of the median: 4^1.5 is 8.
TEST(GuessedImportance, SmallAndLargeColumnsCountMore) {
  EXPECT_THAT(guess(5, {1, 1, 2, 0.5F, 1, /**/ -1, 1, -2, 0.5F, 1}), ElementsAre(1, FloatEq(1), FloatEq(8), FloatEq(8), 1));
}

// The last column has the mean square of the others, 1, and a kurtosis of 2: 2^1.5.
TEST(GuessedImportance, HeavyTailsCountMore) {
  const float root = 1.4142135F;
  EXPECT_THAT(guess(3, {1, 1, root, /**/ 1, -1, 0}), ElementsAre(1, 1, FloatNear(2.828427F, 1e-4F)));
}

TEST(GuessedImportance, IsAtMostTenThousand) {
  EXPECT_THAT(guess(3, {1, 1, 1e-20F, /**/ 1, 1, 1e-20F}), ElementsAre(1, 1, 1e4F));
}

TEST(GuessedImportance, ColumnsOfZerosCountAsOthers) { EXPECT_THAT(guess(3, {1, 0, 1, /**/ 1, 0, 1}), Each(FloatEq(1))); }

TEST(GuessedImportance, NothingIsGuessedFromZerosAndFromValuesThatAreNotFinite) {
  EXPECT_THAT(guess(2, {0, 0, 0, 0}), IsEmpty());
  EXPECT_THAT(guess(2, {1, std::numeric_limits<float>::quiet_NaN()}), IsEmpty());
  EXPECT_THAT(guess(2, {1, std::numeric_limits<float>::infinity()}), IsEmpty());
}

TEST(GuessedImportance, RowsMayBeAddedInParts) {
  const std::vector<float> values{1, 2, -3, 4, 0.5F, 6};
  GuessedImportance parts(2);
  parts.add(DType::kF32, std::as_bytes(std::span(values).first(2)));
  parts.add(DType::kF32, std::as_bytes(std::span(values).subspan(2)));
  EXPECT_EQ(parts.importance(), guess(2, values));
}

TEST(GuessedImportance, AtMost1024RowsOfAllOfTheMatrixAreUsed) {
  EXPECT_THAT(rows_to_guess_from(1024), ElementsAre(::testing::FieldsAre(0, 1024)));
  const std::vector<RowRun> runs = rows_to_guess_from(10'000);
  EXPECT_EQ(runs.size(), 128U);
  EXPECT_EQ(runs.front().first, 0U);
  EXPECT_EQ(runs.back().first + runs.back().count, 10'000U);
}

}  // namespace
}  // namespace ballast
