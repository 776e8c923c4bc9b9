#include "quantize/column_scales.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ColumnScales, RefusesScalesThatRestoreNothing) {
  EXPECT_TRUE(check_restore(std::vector<float>{0.5F, 1, 4096, 1.0F / 4096}));
  for (const float bad : {0.0F, -1.0F, 3.0F, 8192.0F, 1.0F / 8192, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const auto checked = check_restore(std::vector<float>{1, bad});
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, Errc::kCorrupt);
  }
}

}  // namespace
}  // namespace ballast
