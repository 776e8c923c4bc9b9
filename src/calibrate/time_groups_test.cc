#include "calibrate/time_groups.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>

#include <gmock/gmock.h>

namespace ballast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

// Inputs of variance 1 around these means; all timesteps weigh the same unless `weights` says otherwise.
LayerStatistics layer_of(const std::vector<std::vector<float>>& means, std::vector<double> weights = {}) {
  LayerStatistics layer{.columns = means.front().size()};
  for (const auto& row : means) {
    for (const float mean : row) {
      layer.means.push_back(mean);
      layer.squares.push_back(mean * mean + 1);
    }
  }
  layer.counts.assign(means.size(), 1);
  if (weights.empty()) weights.assign(means.size(), 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  layer.weights = std::move(weights);
  return layer;
}

LayerStatistics noise(std::mt19937& random, std::size_t timesteps, std::size_t columns) {
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> means(timesteps, std::vector<float>(columns));
  for (auto& row : means) std::ranges::generate(row, [&] { return normal(random); });
  std::vector<double> weights(timesteps);
  std::uniform_real_distribution<double> uniform(0.1, 2);
  std::ranges::generate(weights, [&] { return uniform(random); });
  return layer_of(means, weights);
}

std::vector<std::size_t> cut(const std::vector<LayerStatistics>& layers, unsigned most) {
  TimeGroups groups;
  for (const LayerStatistics& layer : layers) groups.add(layer);
  return groups.cut(most);
}

// The cost as its definition has it: the weighted squared distance of each timestep's mean from its group's, in units of the
// column's mean square, averaged over the columns.
double cost_of(const LayerStatistics& layer, const std::vector<std::size_t>& starts) {
  double cost = 0;
  for (std::size_t j = 0; j < layer.columns; ++j) {
    const auto at = [&](const std::vector<float>& values, std::size_t t) {
      return static_cast<double>(values[t * layer.columns + j]);
    };
    double square = 0;
    for (std::size_t t = 0; t < layer.timesteps(); ++t) square += layer.weights[t] * at(layer.squares, t);
    for (std::size_t group = 0; group < starts.size(); ++group) {
      const std::size_t end = group + 1 < starts.size() ? starts[group + 1] : layer.timesteps();
      double mean = 0;
      double weight = 0;
      for (std::size_t t = starts[group]; t < end; ++t) {
        mean += layer.weights[t] * at(layer.means, t);
        weight += layer.weights[t];
      }
      mean /= weight;
      for (std::size_t t = starts[group]; t < end; ++t) {
        cost += layer.weights[t] * std::pow(at(layer.means, t) - mean, 2) / square / static_cast<double>(layer.columns);
      }
    }
  }
  return cost;
}

double cost_of(const std::vector<LayerStatistics>& layers, const std::vector<std::size_t>& starts) {
  double cost = 0;
  for (const LayerStatistics& layer : layers) cost += cost_of(layer, starts);
  return cost;
}

// The cheapest of all ways to cut into that many groups.
std::vector<std::size_t> cut_by_trying_all(const std::vector<LayerStatistics>& layers, int groups) {
  const std::size_t timesteps = layers.front().timesteps();
  std::vector<std::size_t> best;
  for (std::uint32_t set = 0; set < 1U << (timesteps - 1); ++set) {
    if (std::popcount(set) != groups - 1) continue;
    std::vector<std::size_t> starts{0};
    for (std::size_t t = 1; t < timesteps; ++t) {
      if ((set >> (t - 1) & 1) != 0) starts.push_back(t);
    }
    if (best.empty() || cost_of(layers, starts) < cost_of(layers, best)) best = starts;
  }
  return best;
}

TEST(TimeGroups, AreCutWhereTheMeansChange) {
  std::vector<std::vector<float>> means;
  for (std::size_t t = 0; t < 30; ++t) means.push_back({t < 7 ? 0.0F : t < 19 ? 2.0F : -1.0F, 5});
  EXPECT_THAT(cut({layer_of(means)}, 10), ElementsAre(0, 7, 19));
  EXPECT_THAT(cut({layer_of(means)}, 3), ElementsAre(0, 7, 19));
  EXPECT_THAT(cut({layer_of(means)}, 2), ElementsAre(0, 19));
  EXPECT_THAT(cut({layer_of(means)}, 1), ElementsAre(0));
  EXPECT_THAT(cut({layer_of(means)}, 0), ElementsAre(0));
}

TEST(TimeGroups, AreTheSameForAllLayers) {
  std::vector<std::vector<float>> early;
  std::vector<std::vector<float>> late;
  for (std::size_t t = 0; t < 20; ++t) {
    early.push_back({t < 4 ? 1.0F : 0.0F});
    late.push_back({t < 15 ? 0.0F : 1.0F, t < 15 ? 0.0F : 2.0F, 0});
  }
  EXPECT_THAT(cut({layer_of(early), layer_of(late)}, 10), ElementsAre(0, 4, 15));
}

TEST(TimeGroups, OfConstantMeansAreOne) {
  const std::vector<std::vector<float>> means(40, {0.1F, -3.7F, 1e4F, 0});
  std::vector<double> weights(40);
  std::iota(weights.begin(), weights.end(), 0.37);
  EXPECT_THAT(cut({layer_of(means, weights), layer_of(means)}, 10), ElementsAre(0));
}

TEST(TimeGroups, WithoutLayersOrInputsAreOne) {
  EXPECT_THAT(TimeGroups().cut(10), ElementsAre(0));
  LayerStatistics dead = layer_of(std::vector<std::vector<float>>(5, {0, 0}));
  std::ranges::fill(dead.squares, 0.0F);
  EXPECT_THAT(cut({dead}, 10), ElementsAre(0));
  EXPECT_THAT(cut({layer_of({{1, 2, 3}})}, 10), ElementsAre(0));
}

TEST(TimeGroups, AreTheBestOfAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const std::vector<LayerStatistics> layers{noise(random, 9, 3), noise(random, 9, 70), noise(random, 9, 1)};
    for (int groups = 1; groups <= 9; ++groups) {
      EXPECT_EQ(cut(layers, static_cast<unsigned>(groups)), cut_by_trying_all(layers, groups));
    }
  }
}

TEST(TimeGroups, DoNotGoByHowLargeALayerIs) {
  std::mt19937 random(6);
  const LayerStatistics small = noise(random, 12, 4);
  LayerStatistics large{.columns = 400, .weights = small.weights, .counts = small.counts};
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t j = 0; j < 400; ++j) {
      large.means.push_back(1000 * small.means[t * 4 + j % 4]);
      large.squares.push_back(1e6F * small.squares[t * 4 + j % 4]);
    }
  }
  const LayerStatistics other = noise(random, 12, 4);
  EXPECT_EQ(cut({small, other}, 4), cut({large, other}, 4));
}

TEST(TimeGroups, WeighTimestepsAsTheLayerDoes) {
  std::vector<std::vector<float>> means;
  for (std::size_t t = 0; t < 12; ++t) means.push_back({t < 3 ? 0.0F : t < 6 ? 1.0F : 2.5F});
  std::vector<double> weights(12, 1);
  EXPECT_THAT(cut({layer_of(means, weights)}, 2), ElementsAre(0, 6));
  std::fill(weights.begin() + 6, weights.end(), 1e-12);
  EXPECT_THAT(cut({layer_of(means, weights)}, 2), ElementsAre(0, 3));
  // Lighter ones are told apart where nothing else is left to tell.
  weights[0] = weights[1] = weights[2] = 0;
  std::fill(weights.begin() + 6, weights.end(), 1e-3);
  EXPECT_THAT(cut({layer_of(means, weights)}, 5), ElementsAre(0, 6));
}

TEST(TimeGroups, OfShuffledTimestepsGainNothing) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> slopes(32);
  std::ranges::generate(slopes, [&] { return normal(random); });
  std::vector<std::vector<float>> means;
  for (int t = 0; t < 100; ++t) {
    means.emplace_back(32);
    for (std::size_t j = 0; j < 32; ++j) means.back()[j] = slopes[j] * std::sin(static_cast<float>(t) / 30);
  }
  const auto left = [](const LayerStatistics& layer) {
    return cost_of(layer, cut({layer}, 8)) / cost_of(layer, std::vector<std::size_t>{0});
  };
  EXPECT_LT(left(layer_of(means)), 0.05);
  std::ranges::shuffle(means, random);
  EXPECT_GT(left(layer_of(means)), 0.6);
}

TEST(TimeGroups, OfVeryManyTimestepsAreCutBetweenRuns) {
  std::vector<std::vector<float>> means;
  for (std::size_t t = 0; t < 4096; ++t) means.push_back({t < 1000 ? 0.0F : t < 3000 ? 1.0F : 3.0F});
  EXPECT_THAT(cut({layer_of(means)}, 3), ElementsAre(0, 1000, 3000));
}

TEST(GroupStatistics, PoolMeansAndVariances) {
  LayerStatistics layer = layer_of({{1, 0}, {3, 0}, {-2, 4}}, {1, 3, 4});
  layer.counts = {10, 30, 5};
  const std::vector<std::size_t> starts{0, 2};
  const GroupStatistics groups = group_means(layer, starts);
  EXPECT_THAT(groups.means, ElementsAre(2.5F, 0, -2, 4));
  // 1 within each timestep, and 0.25 * 1.5² + 0.75 * 0.5² between the first two.
  EXPECT_THAT(groups.variances, ElementsAre(FloatEq(1.75F), FloatEq(1), FloatEq(1), FloatEq(1)));
  EXPECT_THAT(groups.weights, ElementsAre(0.5, 0.5));
  EXPECT_THAT(groups.counts, ElementsAre(40, 5));
  EXPECT_THAT(groups.lows, IsEmpty());
  EXPECT_THAT(groups.highs, IsEmpty());
}

TEST(GroupStatistics, OfOneGroupAreThoseOfAllTimesteps) {
  std::mt19937 random(8);
  const LayerStatistics layer = noise(random, 20, 5);
  const std::vector<std::size_t> whole{0};
  const GroupStatistics groups = group_means(layer, whole);
  for (std::size_t j = 0; j < 5; ++j) {
    double mean = 0;
    double square = 0;
    for (std::size_t t = 0; t < 20; ++t) {
      mean += layer.weights[t] * static_cast<double>(layer.means[t * 5 + j]);
      square += layer.weights[t] * static_cast<double>(layer.squares[t * 5 + j]);
    }
    EXPECT_NEAR(groups.means[j], mean, 1e-6);
    EXPECT_NEAR(groups.variances[j], square - mean * mean, 1e-5);
  }
}

TEST(GroupStatistics, RangesAreOfTimestepsWithInputs) {
  LayerStatistics layer = layer_of({{1}, {2}, {3}, {0}}, {1, 1, 1, 0});
  layer.counts = {1, 1, 1, 0};
  layer.lows = {-1, -7, 2, -100};
  layer.highs = {5, 6, 9, 100};
  const std::vector<std::size_t> starts{0, 2, 3};
  const GroupStatistics groups = group_means(layer, starts);
  EXPECT_THAT(groups.lows, ElementsAre(-7, 2, -7));
  EXPECT_THAT(groups.highs, ElementsAre(6, 9, 9));
  EXPECT_THAT(groups.counts, ElementsAre(2, 1, 0));
  EXPECT_THAT(groups.means, ElementsAre(1.5F, 3, FloatEq(2)));
}

TEST(GroupStatistics, VariancesAreNeverNegative) {
  LayerStatistics layer = layer_of({{0.1F}, {0.1F}});
  layer.squares = {0.01F, 0.01F};
  const std::vector<std::size_t> starts{0};
  EXPECT_THAT(group_means(layer, starts).variances, Each(testing::Ge(0)));
}

}  // namespace
}  // namespace ballast
