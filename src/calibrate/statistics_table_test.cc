#include "calibrate/statistics_table.h"

#include <gmock/gmock.h>

#include "tests/support/statistics.h"

namespace ballast {
namespace {

using test::fails;
using test::floats;
using test::StatisticsFile;
using test::TensorText;

testing::AssertionResult refused(const std::vector<TensorText>& tensors, std::string_view timesteps, std::string_view message) {
  return fails(StatisticsFile(tensors, timesteps).result(), Errc::kCorrupt, message);
}

testing::AssertionResult accepted(const std::vector<TensorText>& tensors, std::string_view timesteps = {}) {
  const StatisticsFile file(tensors, timesteps);
  if (file.result()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << file.result().error().message;
}

// What every weight must have, and then some.
std::vector<TensorText> with(std::vector<TensorText> more, const std::vector<std::uint64_t>& shape = {2, 3}) {
  std::vector<TensorText> tensors{floats("w.x_mean", shape), floats("w.x_sqmean", shape)};
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

TEST(StatisticsTable, TakesAllStatisticsByTimestep) {
  EXPECT_TRUE(accepted(with({floats("w.count", {2}), floats("w.hessian", {3, 3}), floats("w.x_max", {2}), floats("w.x_min", {2}),
                             floats("w.y_sqmean", {2})}),
                       "[0, 1]"));
}

TEST(StatisticsTable, TakesPlainStatisticsWithNumbersAsVectorsOrScalars) {
  EXPECT_TRUE(
      accepted(with({floats("w.count", {1}), floats("w.x_max", {}), floats("w.x_min", {1}), floats("w.y_sqmean", {})}, {3})));
  EXPECT_TRUE(accepted(with({floats("w.hessian", {1, 1})}, {1})));
}

TEST(StatisticsTable, MetadataOfAnotherFormatIsUnsupported) {
  const auto open = [](std::string_view metadata) { return StatisticsFile(test::safetensors(with({}), metadata)); };
  EXPECT_TRUE(fails(open(R"({"format":"pt"})").result(), Errc::kUnsupported,
                    "s: not activation statistics: the metadata has format 'pt', expected 'timecalib.v1'; record them with "
                    "ballast.calibration.Recorder"));
  EXPECT_TRUE(fails(open(R"({"timesteps":"[0,1]"})").result(), Errc::kUnsupported,
                    "s: not activation statistics: the metadata has no format, expected 'timecalib.v1'; record them with "
                    "ballast.calibration.Recorder"));
}

TEST(StatisticsTable, TimestepsAreAListOfDifferentNumbers) {
  const auto tensors = with({});
  EXPECT_TRUE(accepted(tensors, "[1e3, -0.5]"));
  EXPECT_TRUE(refused(tensors, "{}", "s: metadata 'timesteps': {} is not a list of numbers"));
  EXPECT_TRUE(refused(tensors, "2", "s: metadata 'timesteps': 2 is not a list of numbers"));
  EXPECT_TRUE(refused(tensors, "[0, true]", "s: metadata 'timesteps': entry 1 is true, not a number"));
  EXPECT_TRUE(refused(tensors, "[NaN, 1]", "s: metadata 'timesteps': entry 0 is 'NaN', not a number"));
  EXPECT_TRUE(refused(tensors, "[0, [1]]", "s: metadata 'timesteps': entry 1 is [1], not a number"));
  EXPECT_TRUE(refused(tensors, "[]", "s: metadata 'timesteps': has 0 numbers, it must have from 1 to 100000"));
  EXPECT_TRUE(refused(tensors, "[7, 3, 7.0]", "s: metadata 'timesteps': 7 is given twice"));
  EXPECT_TRUE(refused(tensors, "[0, -0.0]", "s: metadata 'timesteps': 0 is given twice"));
  for (const std::string_view broken : {"", "[0, 1", "[0 1]", "[0, 1]]", "[0, 1e999]"}) {
    const std::string metadata = fmt::format(R"({{"format":"timecalib.v1","timesteps":"{}"}})", broken);
    const StatisticsFile file(test::safetensors(tensors, metadata));
    ASSERT_FALSE(file.result()) << broken;
    EXPECT_EQ(file.result().error().code, Errc::kCorrupt);
    EXPECT_THAT(file.result().error().message, testing::StartsWith("s: metadata 'timesteps': invalid JSON: "));
  }
}

TEST(StatisticsTable, TimestepsAreNotTooMany) {
  std::string list = "[0";
  for (unsigned t = 1; t < 100'000; ++t) list += fmt::format(",{}", t);
  const std::vector<TensorText> tensors{floats("w.x_mean", {100'000, 1}), floats("w.x_sqmean", {100'000, 1})};
  EXPECT_TRUE(accepted(tensors, list + "]"));
  EXPECT_TRUE(refused(tensors, list + ",100000]", "s: metadata 'timesteps': has 100001 numbers, it must have from 1 to 100000"));
}

TEST(StatisticsTable, NamesEndInAKnownStatistic) {
  const std::string kinds =
      "the name must be <weight>.x_mean or .x_sqmean or .x_min or .x_max or .y_sqmean or .count or .hessian";
  EXPECT_TRUE(refused(with({floats("w.x_var", {2, 3})}), "[0, 1]", "s: tensor 'w.x_var': " + kinds));
  EXPECT_TRUE(refused(with({floats("w.weight", {2, 3})}), "[0, 1]", "s: tensor 'w.weight': " + kinds));
  EXPECT_TRUE(refused(with({floats("x_mean", {2, 3})}), "[0, 1]", "s: tensor 'x_mean': " + kinds));
  EXPECT_TRUE(refused(with({floats(".count", {2})}), "[0, 1]", "s: tensor '.count': " + kinds));
  EXPECT_TRUE(refused(with({floats("w.", {2})}), "[0, 1]", "s: tensor 'w.': " + kinds));
}

TEST(StatisticsTable, StatisticsAreF32) {
  EXPECT_TRUE(
      refused(with({{"w.count", DType::kI64, {2}}}), "[0, 1]", "s: tensor 'w.count': dtype is I64; statistics must be F32"));
}

TEST(StatisticsTable, EveryWeightHasBothMeans) {
  EXPECT_TRUE(refused({floats("w.x_mean", {2, 3})}, "[0, 1]", "s: tensor 'w.x_mean': 'w.x_sqmean' is missing"));
  EXPECT_TRUE(refused({floats("w.x_sqmean", {2, 3})}, "[0, 1]", "s: tensor 'w.x_sqmean': 'w.x_mean' is missing"));
  EXPECT_TRUE(refused({floats("w.x_mean", {3})}, "", "s: tensor 'w.x_mean': 'w.x_sqmean' is missing"));
  EXPECT_TRUE(refused(with({floats("v.count", {2})}), "[0, 1]", "s: tensor 'v.count': 'v.x_mean' is missing"));
  EXPECT_TRUE(refused({}, "[0, 1]", "s: contains no statistics"));
}

TEST(StatisticsTable, MinAndMaxComeTogether) {
  EXPECT_TRUE(refused(with({floats("w.x_min", {2})}), "[0, 1]", "s: tensor 'w.x_min': 'w.x_max' is missing"));
  EXPECT_TRUE(refused(with({floats("w.x_max", {2})}), "[0, 1]", "s: tensor 'w.x_max': 'w.x_min' is missing"));
}

TEST(StatisticsTable, MeansHaveARowForEachTimestep) {
  EXPECT_TRUE(refused(with({}), "[0, 1, 2]",
                      "s: tensor 'w.x_mean': shape is [2, 3], expected [3, columns], because the metadata has 3 timesteps"));
  EXPECT_TRUE(refused(with({}, {2}), "[0, 1]",
                      "s: tensor 'w.x_mean': shape is [2], expected [2, columns], because the metadata has 2 timesteps"));
  EXPECT_TRUE(
      refused(with({}), {}, "s: tensor 'w.x_mean': shape is [2, 3], expected [columns], because the metadata has no timesteps"));
  EXPECT_TRUE(
      refused(with({}, {}), {}, "s: tensor 'w.x_mean': shape is [], expected [columns], because the metadata has no timesteps"));
  EXPECT_TRUE(refused(with({}, {2, 0}), "[0, 1]", "s: tensor 'w.x_mean': shape [2, 0] has no columns"));
}

TEST(StatisticsTable, OtherShapesGoByTheMeans) {
  const auto misfit = [](TensorText tensor, std::string_view message) {
    return refused(with({std::move(tensor)}), "[0, 1]", message);
  };
  EXPECT_TRUE(refused({floats("w.x_mean", {2, 3}), floats("w.x_sqmean", {2, 4})}, "[0, 1]",
                      "s: tensor 'w.x_sqmean': shape [2, 4], expected [2, 3]"));
  EXPECT_TRUE(misfit(floats("w.count", {3}), "s: tensor 'w.count': shape [3], expected [2]"));
  EXPECT_TRUE(misfit(floats("w.count", {}), "s: tensor 'w.count': shape [], expected [2]"));
  EXPECT_TRUE(misfit(floats("w.y_sqmean", {2, 1}), "s: tensor 'w.y_sqmean': shape [2, 1], expected [2]"));
  EXPECT_TRUE(misfit(floats("w.hessian", {3, 2}), "s: tensor 'w.hessian': shape [3, 2], expected [3, 3]"));
  EXPECT_TRUE(refused(with({floats("w.count", {2})}, {3}), {}, "s: tensor 'w.count': shape [2], expected [1]"));
  EXPECT_TRUE(refused({floats("w.x_mean", {1}), floats("w.x_sqmean", {})}, {}, "s: tensor 'w.x_sqmean': shape [], expected [1]"));
}

TEST(StatisticsTable, WeightsMayDifferInColumns) {
  EXPECT_TRUE(accepted(with({floats("v.x_mean", {2, 7}), floats("v.x_sqmean", {2, 7})}), "[0, 1]"));
}

}  // namespace
}  // namespace ballast
