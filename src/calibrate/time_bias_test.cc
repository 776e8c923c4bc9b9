#include "calibrate/time_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::IsEmpty;

// Two rows of 32 weights whose codes are all 0, so that each weight is read as the offset of its group.
class TimeBias : public testing::Test {
 protected:
  std::vector<float> bias(const GroupStatistics& groups) const {
    std::vector<float> out(groups.counts.size() * 2);
    std::vector<std::byte> packed(2 * format_.packed_bytes());
    std::vector<float> scales{1, 1};
    std::vector<float> offsets{0.5F, -1};
    make_time_bias(format_, DType::kF32, std::as_bytes(std::span(weights_)),
                   {.packed = packed, .scales = scales, .offsets = offsets}, groups, out);
    return out;
  }

  // The same mean and variance in all columns.
  static GroupStatistics groups(const std::vector<float>& means, float variance, double count) {
    GroupStatistics made;
    for (const float mean : means) {
      made.means.insert(made.means.end(), 32, mean);
      made.variances.insert(made.variances.end(), 32, variance);
      made.counts.push_back(count);
    }
    return made;
  }

  RowFormat format_{.columns = 32, .bits = 4, .group_size = 32, .parameters = DType::kF32};
  std::vector<float> weights_ = std::vector<float>(64, 0.25F);  // off by 0.25 in the first row, by -1.25 in the second
};

TEST_F(TimeBias, CompensatesForTheMeanOfEachGroup) {
  EXPECT_THAT(bias(groups({1, -2, 0}, 0, 2)), ElementsAre(-8, 40, 16, -80, 0, 0));
}

TEST_F(TimeBias, IsLeftOutWhereTheMeanIsVague) {
  // The square of a shift is 32² e² m², its variance 32 e² / (n - 1): it pays if (n - 1) m² > 1 / 16.
  EXPECT_THAT(bias(groups({1}, 0, 1)), ElementsAre(0, 0));
  EXPECT_THAT(bias(groups({1}, 1, 2)), ElementsAre(-8, 40));
  EXPECT_THAT(bias(groups({0.1F}, 1, 7)), ElementsAre(0, 0));
  EXPECT_THAT(bias(groups({0.1F}, 1, 8)), ElementsAre(FloatNear(-0.8F, 1e-6F), FloatNear(4, 1e-6F)));
}

TEST_F(TimeBias, UsesRestoredColumns) {
  const std::vector<float> restore(32, 2);
  format_.restore = restore;  // read as 1 and -2: off by 0.75 and -2.25
  EXPECT_THAT(bias(groups({1}, 0, 2)), ElementsAre(-24, 72));
}

TEST(ActivationScales, HoldTheRangeAndZero) {
  const ActivationScales made = activation_scales({.lows = {-1, 1, -3, 0}, .highs = {1.55F, 5.1F, -2, 0}});
  EXPECT_THAT(made.scales, ElementsAre(FloatNear(0.01F, 1e-7F), FloatNear(0.02F, 1e-7F), FloatNear(3.0F / 255, 1e-7F), 1));
  EXPECT_THAT(made.zeros, ElementsAre(100, 0, 255, 0));
  EXPECT_THAT(activation_scales({}).scales, IsEmpty());
}

}  // namespace
}  // namespace ballast
