#include "quantize/quality.h"

#include <cmath>

#include <gtest/gtest.h>

#include "jobs/quantize/report.h"

namespace ballast {
namespace {

// w = (3, 4), w + e = (3, 5)
TEST(Quality, FiguresByHand) {
  const Quality quality = quality_of({.count = 2, .weights = 25, .cross = 4, .error = 1, .max_error = 1});
  EXPECT_DOUBLE_EQ(quality.cosine_similarity, 29 / (5 * std::sqrt(34.0)));
  EXPECT_DOUBLE_EQ(quality.relative_rmse, 0.2);
  EXPECT_DOUBLE_EQ(quality.sqnr_db, 10 * std::log10(25.0));
  EXPECT_EQ(quality.max_error, 1);
}

TEST(Quality, ZerosAreLikeZeros) {
  EXPECT_EQ(quality_of({.count = 2}).cosine_similarity, 1);
  EXPECT_EQ(quality_of({.count = 2}).relative_rmse, 0);
  EXPECT_TRUE(std::isinf(quality_of({.count = 2}).sqnr_db));
  EXPECT_EQ(quality_of({.count = 2, .error = 1}).cosine_similarity, 0);
}

TEST(Quality, LayersCountByTheirParameters) {
  QuantizeReport report;
  report.layers.push_back(
      {.parameters = 300, .bytes = 150, .quality = {.cosine_similarity = 1, .relative_rmse = 0.1, .max_error = 2}});
  report.layers.push_back(
      {.parameters = 100, .bytes = 100, .quality = {.cosine_similarity = 0.6, .relative_rmse = 0.5, .max_error = 1}});
  summarize_layers(report, {}, 0.6);
  EXPECT_DOUBLE_EQ(report.quality.cosine_similarity, 0.9);
  EXPECT_DOUBLE_EQ(report.quality.relative_rmse, 0.2);
  EXPECT_DOUBLE_EQ(report.quality.sqnr_db, -20 * std::log10(0.2));
  EXPECT_EQ(report.quality.max_error, 2);
  EXPECT_DOUBLE_EQ(report.bits_per_weight, 5);
  EXPECT_TRUE(report.passed);
  summarize_layers(report, {}, 0.61);
  EXPECT_FALSE(report.passed);
}

}  // namespace
}  // namespace ballast
