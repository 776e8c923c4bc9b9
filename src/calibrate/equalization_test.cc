#include "calibrate/equalization.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using testing::ElementsAre;

TEST(Equalization, GoesByInputsOrByWeights) {
  const std::vector<float> importance{1, 1, 16, 16};  // inputs of size 1 and 4
  const std::vector<float> largest{1, 4, 1, 4};
  EXPECT_THAT(equalize(1, importance, largest), ElementsAre(2, 2, 0.5F, 0.5F));
  EXPECT_THAT(equalize(0, importance, largest), ElementsAre(0.5F, 2, 0.5F, 2));
  EXPECT_THAT(equalize(0.5, importance, largest), ElementsAre(1, 2, 0.5F, 1));
}

TEST(Equalization, StaysWithinBounds) {
  for (const float scale : equalize(1, std::vector<float>{0, 1e30F, 1}, std::vector<float>{0, 1, 1e-30F})) {
    EXPECT_GE(scale, std::exp2(-12.0F));
    EXPECT_LE(scale, std::exp2(12.0F));
    EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
  }
}

}  // namespace
}  // namespace ballast
