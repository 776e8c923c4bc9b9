#include "scheme/time_aware_table.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(TimeAwareTable, TakesBlocksOfRows) {
  TimeAwareTable table;
  ASSERT_TRUE(
      table.add_json("a", 3, 0, 2, R"({"boundaries": [10, 20.5], "time_bias": [[1, 2], [3, 4], [5, 6]], "act_scale": [1, 2, 3],
                                               "act_zero": [4, 5, 6]})"));
  ASSERT_TRUE(table.add_json("a", 3, 2, 1, R"({"boundaries": [10, 20.5], "time_bias": [[7], [8], [9]]})"));
  EXPECT_THAT(table.boundaries, ElementsAre(10, 20.5));
  EXPECT_THAT(table.layers.at("a").bias, ElementsAre(1, 2, 7, 3, 4, 8, 5, 6, 9));
  EXPECT_THAT(table.layers.at("a").act_zero, ElementsAre(4, 5, 6));
}

TEST(TimeAwareTable, RefusesWhatDoesNotFit) {
  const auto refused = [](std::string_view json) {
    TimeAwareTable table;
    const auto added = table.add_json("a", 2, 0, 2, json);
    return added ? std::string("taken") : added.error().message;
  };
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1, 2]]})"), "taken");
  EXPECT_EQ(refused(R"({"time_bias": [[1, 2]]})"), "no list boundaries");
  EXPECT_EQ(refused(R"({"boundaries": [1]})"), "no list time_bias");
  EXPECT_EQ(refused(R"({"boundaries": [2, 1], "time_bias": [[1, 2]]})"), "boundaries are not ascending: 2 comes before 1");
  EXPECT_EQ(refused(R"({"boundaries": [1], "time_bias": [[1, 2]]})"), "time_bias has 1 values, expected 2");
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1]]})"), "a group of time_bias has 1 values, expected 2");
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1, "2"]]})"), "item 1 of time_bias is not a finite number");
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1, 1e99]]})"), "item 1 of time_bias is not a finite number");
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1, 2]], "act_scale": [1]})"), "no list act_zero");
  EXPECT_EQ(refused(R"({"boundaries": [], "time_bias": [[1, 2]], "act_scale": [1, 2], "act_zero": [1]})"),
            "act_scale has 2 values, expected 1");
}

TEST(TimeAwareTable, LayersHaveTheSameGroups) {
  TimeAwareTable table;
  ASSERT_TRUE(table.add_json("a", 1, 0, 1, R"({"boundaries": [1], "time_bias": [[1], [2]]})"));
  EXPECT_TRUE(fails(table.add_json("b", 1, 0, 1, R"({"boundaries": [2], "time_bias": [[1], [2]]})"), Errc::kCorrupt,
                    "the boundaries differ from those of other layers"));
}

TEST(TimeAwareTable, TakesTensors) {
  TimeAwareTable table;
  ASSERT_TRUE(table.set_boundaries("[0.5]"));
  ASSERT_TRUE(table.add("a", 2, "time_bias", {1, 2, 3, 4}));
  ASSERT_TRUE(table.add("a", 2, "act_scale", {1, 2}));
  EXPECT_THAT(table.layers.at("a").act_zero, IsEmpty());
  EXPECT_TRUE(fails(table.add("a", 2, "time_bias", {1, 2, 3}), Errc::kCorrupt, "time_bias has 3 values, expected 4"));
  EXPECT_TRUE(fails(table.add("a", 2, "x", {}), Errc::kCorrupt, "'x' is unknown"));
  EXPECT_TRUE(fails(table.add("a", 2, "act_zero", {1, std::numeric_limits<float>::infinity()}), Errc::kCorrupt,
                    "act_zero has values that are NaN or infinite"));
  EXPECT_TRUE(fails(table.set_boundaries("{}"), Errc::kCorrupt, "boundaries is not a list"));
}

}  // namespace
}  // namespace ballast
