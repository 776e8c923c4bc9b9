#include "plan/bit_budget.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Layers = std::vector<std::vector<BitChoice>>;

double error_of(const Layers& layers, const std::vector<std::size_t>& choices) {
  double error = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) error += layers[i][choices[i]].error;
  return error;
}

std::uint64_t bytes_of(const Layers& layers, const std::vector<std::size_t>& choices) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) bytes += layers[i][choices[i]].bytes;
  return bytes;
}

// The best there is, by trying all.
double least_error(const Layers& layers, std::uint64_t budget, std::size_t layer = 0) {
  if (layer == layers.size()) return 0;
  double best = 1e300;
  for (const BitChoice& choice : layers[layer]) {
    if (choice.bytes <= budget) best = std::min(best, choice.error + least_error(layers, budget - choice.bytes, layer + 1));
  }
  return best;
}

TEST(BitBudget, GivesTheBitsToTheHardLayer) {
  const Layers layers{{{2, 20, 1}, {4, 40, 0.5}}, {{2, 20, 9}, {4, 40, 3}}};
  EXPECT_THAT(allot_bits(layers, 60, 60).choices, ElementsAre(0, 1));
  EXPECT_THAT(allot_bits(layers, 79, 79).choices, ElementsAre(0, 1));
  EXPECT_THAT(allot_bits(layers, 80, 80).choices, ElementsAre(1, 1));
  EXPECT_THAT(allot_bits(layers, 40, 40).choices, ElementsAre(0, 0));
}

TEST(BitBudget, HasNothingWhereTheSmallestDoNotFit) {
  EXPECT_THAT(allot_bits(Layers{{{2, 20, 1}}, {{8, 21, 1}}}, 40, 40).choices, IsEmpty());
  EXPECT_THAT(allot_bits({}, 0, 0).choices, IsEmpty());
}

TEST(BitBudget, LeavesOutAStepThatDoesNotPayInFavourOfALargerOne) {
  EXPECT_THAT(allot_bits(Layers{{{2, 10, 10}, {3, 20, 9.9}, {4, 30, 1}}}, 30, 30).choices, ElementsAre(2));
  EXPECT_THAT(allot_bits(Layers{{{2, 10, 10}, {3, 20, 11}}}, 30, 30).choices, ElementsAre(0));  // more bits, and worse
}

TEST(BitBudget, UniformMayHaveMore) {
  const Layers layers{{{2, 20, 4}, {4, 40, 1}}, {{2, 20, 4}, {4, 40, 1}}};
  EXPECT_THAT(allot_bits(layers, 79, 79).choices, ElementsAre(1, 0));
  EXPECT_FALSE(allot_bits(layers, 79, 79).is_uniform);
  EXPECT_THAT(allot_bits(layers, 79, 80).choices, ElementsAre(1, 1));
  EXPECT_TRUE(allot_bits(layers, 79, 80).is_uniform);
  EXPECT_THAT(allot_bits(layers, 39, 40).choices, ElementsAre(0, 0));
  EXPECT_THAT(allot_bits(layers, 60, 40).choices, ElementsAre(1, 0));  // what is uniform was tried, and is too large
}

TEST(BitBudget, FitsAndIsNeverWorseThanUniform) {
  std::mt19937 random(7);
  double found = 0;
  double best = 0;
  for (int round = 0; round < 300; ++round) {
    Layers layers(1 + random() % 5);
    std::uint64_t least = 0;
    std::uint64_t most = 0;
    for (auto& layer : layers) {
      const std::uint32_t size = 1 + static_cast<std::uint32_t>(random() % 100);
      const double hard = size * (1 + static_cast<double>(random() % 1000));
      for (const unsigned bits : {2U, 3U, 4U, 6U, 8U}) layer.push_back({bits, size * bits, hard / (1U << bits)});
      least += layer.front().bytes;
      most += layer.back().bytes;
    }
    const std::uint64_t budget = least + random() % (most - least + 1);
    const auto choices = allot_bits(layers, budget, budget).choices;
    ASSERT_EQ(choices.size(), layers.size());
    EXPECT_LE(bytes_of(layers, choices), budget);
    for (std::size_t uniform = 0; uniform < 5; ++uniform) {
      const std::vector<std::size_t> same(layers.size(), uniform);
      if (bytes_of(layers, same) > budget) continue;
      EXPECT_LE(error_of(layers, choices), error_of(layers, same) * (1 + 1e-12));
    }
    found += error_of(layers, choices);
    best += least_error(layers, budget);
  }
  EXPECT_LT(found, best * 1.1);
}

}  // namespace
}  // namespace ballast
