#include "calibrate/layer_statistics.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "tests/support/statistics.h"

namespace ballast {
namespace {

using test::fails;
using test::floats;
using test::StatisticsFile;
using test::TensorText;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Result<LayerStatistics> read(const std::vector<TensorText>& tensors, std::string_view timesteps, unsigned most = 128) {
  return StatisticsFile(tensors, timesteps, most)->read("w");
}

testing::AssertionResult refused(const std::vector<TensorText>& tensors, std::string_view timesteps, std::string_view message) {
  return fails(read(tensors, timesteps), Errc::kCorrupt, message);
}

// Two timesteps of two columns, and what else is told of them.
std::vector<TensorText> with(std::vector<TensorText> more) {
  std::vector<TensorText> tensors{floats("w.x_mean", {2, 2}, {1, -2, 3, -4}), floats("w.x_sqmean", {2, 2}, {2, 5, 10, 17})};
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

TEST(LayerStatistics, GoByAscendingTimesteps) {
  const auto layer = read(
      with({floats("w.count", {2}, {1, 3}), floats("w.x_min", {2}, {-5, -6}), floats("w.x_max", {2}, {7, 8})}), "[999, 0.5]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_EQ(layer->columns, 2);
  EXPECT_EQ(layer->timesteps(), 2);
  EXPECT_THAT(layer->means, ElementsAre(3, -4, 1, -2));
  EXPECT_THAT(layer->squares, ElementsAre(10, 17, 2, 5));
  EXPECT_THAT(layer->counts, ElementsAre(3, 1));
  EXPECT_THAT(layer->weights, ElementsAre(0.75, 0.25));
  EXPECT_THAT(layer->lows, ElementsAre(-6, -5));
  EXPECT_THAT(layer->highs, ElementsAre(8, 7));
}

TEST(LayerStatistics, WithoutCountsEveryTimestepWeighsTheSame) {
  const auto layer = read(with({}), "[0, 1]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->counts, ElementsAre(1, 1));
  EXPECT_THAT(layer->weights, ElementsAre(0.5, 0.5));
  EXPECT_THAT(layer->lows, IsEmpty());
  EXPECT_THAT(layer->highs, IsEmpty());
}

TEST(LayerStatistics, PlainOnesAreOfOneTimestep) {
  const auto layer = read({floats("w.x_mean", {3}, {1, 0, -1}), floats("w.x_sqmean", {3}, {1, 4, 1}), floats("w.count", {}, {50}),
                           floats("w.x_min", {1}, {-3}), floats("w.x_max", {}, {3}), floats("w.y_sqmean", {1}, {0.25F})},
                          {});
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->means, ElementsAre(1, 0, -1));
  EXPECT_THAT(layer->squares, ElementsAre(1, 4, 1));
  EXPECT_THAT(layer->weights, ElementsAre(1));
  EXPECT_THAT(layer->counts, ElementsAre(50));
  EXPECT_THAT(layer->lows, ElementsAre(-3));
  EXPECT_THAT(layer->highs, ElementsAre(3));
  EXPECT_THAT(layer->importance, ElementsAre(0.5F, 2, 0.5F));
}

TEST(LayerStatistics, OnlyUsedTimestepsAreRead) {
  const std::vector<TensorText> tensors{floats("w.x_mean", {3, 1}, {1, kNan, 3}), floats("w.x_sqmean", {3, 1}, {1, -1, 9})};
  const auto layer = read(tensors, "[0, 1, 2]", 2);
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->means, ElementsAre(1, 3));
  EXPECT_TRUE(refused(tensors, "[0, 1, 2]", "s: tensor 'w.x_mean': nan in column 0 at timestep 1"));
}

TEST(LayerStatistics, ImportanceIsTheWeightedMeanSquareByItsMean) {
  const auto layer = read(with({floats("w.count", {2}, {1, 3}), floats("w.y_sqmean", {2}, {1, 6})}), "[0, 1]");
  ASSERT_TRUE(layer) << layer.error().message;
  // Weights 1 and 3/6, that is 2/3 and 1/3: 14/3 and 9, and 41/6 on average.
  EXPECT_THAT(layer->weights, ElementsAre(DoubleEq(2.0 / 3), DoubleEq(1.0 / 3)));
  EXPECT_THAT(layer->importance, ElementsAre(FloatEq(28.0F / 41), FloatEq(54.0F / 41)));
}

TEST(LayerStatistics, DeadColumnsKeepALittleImportance) {
  const auto layer = read({floats("w.x_mean", {1, 3}, {0, 1, 0}), floats("w.x_sqmean", {1, 3}, {0, 2, 1e-9F})}, "[0]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->importance, ElementsAre(FloatEq(3e-4F), FloatEq(3), FloatEq(3e-4F)));
}

TEST(LayerStatistics, AHugeColumnDoesNotMakeOthersAlike) {
  const auto layer = read({floats("w.x_mean", {1, 4}), floats("w.x_sqmean", {1, 4}, {1, 2, 4, 1e9F})}, "[0]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->importance[1] / layer->importance[0], FloatEq(2));
  EXPECT_THAT(layer->importance[2] / layer->importance[0], FloatEq(4));
}

TEST(LayerStatistics, WithoutInputsAtAllEveryColumnIsAsImportant) {
  const auto layer = read({floats("w.x_mean", {2, 2}), floats("w.x_sqmean", {2, 2})}, "[0, 1]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->importance, ElementsAre(1, 1));
}

TEST(LayerStatistics, ImportanceHoldsTheLargestAndSmallestFloats) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const auto large = read({floats("w.x_mean", {1, 2}), floats("w.x_sqmean", {1, 2}, {most, most})}, "[0]");
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_THAT(large->importance, ElementsAre(1, 1));
  const auto small = read({floats("w.x_mean", {1, 2}), floats("w.x_sqmean", {1, 2}, {least, 3 * least})}, "[0]");
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_THAT(small->importance, ElementsAre(0.5F, 1.5F));
}

TEST(LayerStatistics, ATimestepWithoutInputsHasNoWeight) {
  const auto layer = read(with({floats("w.count", {2}, {0, 3}), floats("w.y_sqmean", {2}, {0.001F, 6})}), "[0, 1]");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->weights, ElementsAre(0, 1));
}

TEST(TimestepWeights, ZeroEnergyCountsAsTheSmallest) {
  const std::vector<double> counts{1, 1, 2, 0};
  const std::vector<float> energies{4, 0, 2, 1e-30F};
  EXPECT_THAT(timestep_weights(counts, energies), ElementsAre(DoubleEq(1.0 / 7), DoubleEq(2.0 / 7), DoubleEq(4.0 / 7), 0));
  const std::vector<float> nothing(4);
  EXPECT_THAT(timestep_weights(counts, nothing), ElementsAre(0.25, 0.25, 0.5, 0));
}

TEST(TimestepWeights, AreFiniteAtTheEndsOfTheRange) {
  const std::vector<double> counts{3e38, 1e-45, 1};
  const std::vector<float> energies{std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 1};
  const auto weights = timestep_weights(counts, energies);
  EXPECT_DOUBLE_EQ(weights[0], 1);
  EXPECT_GT(weights[1], 0);
}

TEST(LayerStatistics, NanAndInfinityAreCorrupt) {
  const std::vector<TensorText> good{floats("w.x_mean", {2, 2}), floats("w.x_sqmean", {2, 2})};
  const auto misread = [&](TensorText tensor, std::string_view message) {
    std::vector<TensorText> tensors = good;
    if (tensor.name == "w.x_mean" || tensor.name == "w.x_sqmean") {
      tensors[tensor.name == "w.x_sqmean" ? 1 : 0] = std::move(tensor);
    } else {
      if (tensor.name == "w.x_min") tensors.push_back(floats("w.x_max", {2}));
      if (tensor.name == "w.x_max") tensors.push_back(floats("w.x_min", {2}));
      tensors.push_back(std::move(tensor));
    }
    return refused(tensors, "[10, 20]", message);
  };
  EXPECT_TRUE(misread(floats("w.x_mean", {2, 2}, {0, 0, 0, kNan}), "s: tensor 'w.x_mean': nan in column 1 at timestep 20"));
  EXPECT_TRUE(
      misread(floats("w.x_sqmean", {2, 2}, {0, kInfinity, 0, 0}), "s: tensor 'w.x_sqmean': inf in column 1 at timestep 10"));
  EXPECT_TRUE(misread(floats("w.x_min", {2}, {-kInfinity, 0}), "s: tensor 'w.x_min': -inf at timestep 10"));
  EXPECT_TRUE(misread(floats("w.x_max", {2}, {0, kNan}), "s: tensor 'w.x_max': nan at timestep 20"));
  EXPECT_TRUE(misread(floats("w.y_sqmean", {2}, {kNan, 0}), "s: tensor 'w.y_sqmean': nan at timestep 10"));
  EXPECT_TRUE(misread(floats("w.count", {2}, {kInfinity, 0}), "s: tensor 'w.count': inf at timestep 10"));
}

TEST(LayerStatistics, ContradictionsAreCorrupt) {
  EXPECT_TRUE(refused({floats("w.x_mean", {1, 2}), floats("w.x_sqmean", {1, 2}, {0, -1})}, "[3]",
                      "s: tensor 'w.x_sqmean': -1 in column 1 at timestep 3, expected at least 0"));
  EXPECT_TRUE(refused({floats("w.x_mean", {2}, {0, 2}), floats("w.x_sqmean", {2}, {0, 3.9F})}, {},
                      "s: tensor 'w.x_sqmean': 3.9 in column 1, below the square of the mean, 4"));
  EXPECT_TRUE(
      refused(with({floats("w.count", {2}, {3, -1})}), "[3, 4]", "s: tensor 'w.count': -1 at timestep 4, expected at least 0"));
  EXPECT_TRUE(refused(with({floats("w.count", {2}, {0, 0})}), "[3, 4]", "s: tensor 'w.count': 0 at all of 2 timesteps"));
  EXPECT_TRUE(refused(with({floats("w.y_sqmean", {2}, {-2, 1})}), "[3, 4]",
                      "s: tensor 'w.y_sqmean': -2 at timestep 3, expected at least 0"));
  EXPECT_TRUE(refused(with({floats("w.x_min", {2}, {0, 0.5F}), floats("w.x_max", {2}, {0, 0.25F})}), "[3, 4]",
                      "s: tensor 'w.x_min': 0.5 at timestep 4, above x_max 0.25"));
  EXPECT_TRUE(
      refused({floats("w.x_mean", {1}), floats("w.x_sqmean", {1}), floats("w.count", {}, {0})}, {}, "s: tensor 'w.count': 0"));
}

TEST(LayerStatistics, RoundingIsForgiven) {
  const auto read_column = [](float mean, float square) {
    return read({floats("w.x_mean", {1}, {mean}), floats("w.x_sqmean", {1}, {square})}, {});
  };
  EXPECT_TRUE(read_column(2, 3.97F));
  EXPECT_TRUE(read_column(1e-23F, 0));
  EXPECT_FALSE(read_column(1e-18F, 0));
}

}  // namespace
}  // namespace ballast
