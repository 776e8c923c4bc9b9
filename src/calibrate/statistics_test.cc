#include "calibrate/statistics.h"

#include <limits>

#include <gmock/gmock.h>

#include "tests/support/statistics.h"

namespace ballast {
namespace {

using test::fails;
using test::floats;
using test::StatisticsFile;
using test::TempDir;
using test::TensorText;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TensorText> means(std::string_view weight, std::uint64_t timesteps, std::uint64_t columns) {
  return {floats(fmt::format("{}.x_mean", weight), {timesteps, columns}),
          floats(fmt::format("{}.x_sqmean", weight), {timesteps, columns})};
}

TEST(Statistics, ListWeightsAndTimesteps) {
  auto tensors = means("b.weight", 2, 4);
  std::ranges::copy(means("a", 2, 3), std::back_inserter(tensors));
  tensors.push_back(floats("a.hessian", {3, 3}));
  const StatisticsFile file(tensors, "[8, 2]");
  ASSERT_TRUE(file.result()) << file.result().error().message;
  EXPECT_THAT(file->weights(), ElementsAre("a", "b.weight"));
  EXPECT_TRUE(file->has("a"));
  EXPECT_FALSE(file->has("b"));
  EXPECT_TRUE(file->has_hessian("a"));
  EXPECT_FALSE(file->has_hessian("b.weight"));
  EXPECT_FALSE(file->has_hessian("c"));
  EXPECT_EQ(file->columns("a"), 3);
  EXPECT_EQ(file->columns("b.weight"), 4);
  EXPECT_EQ(file->columns("c"), 0);
  EXPECT_THAT(file->timesteps(), ElementsAre(2, 8));
  EXPECT_EQ(file->recorded_timesteps(), 2);
  EXPECT_EQ(file->file().path(), "s");
  EXPECT_TRUE(fails(file->read("c"), Errc::kNotFound, "s: no statistics for 'c'"));
}

TEST(Statistics, PlainOnesHaveNoTimesteps) {
  const StatisticsFile file({floats("a.x_mean", {3}), floats("a.x_sqmean", {3})});
  ASSERT_TRUE(file.result()) << file.result().error().message;
  EXPECT_THAT(file->timesteps(), IsEmpty());
  EXPECT_EQ(file->recorded_timesteps(), 0);
}

TEST(Statistics, UseAtMostSoManyTimestepsEvenlySpread) {
  const auto used = [](unsigned most) {
    const StatisticsFile file(means("w", 11, 1), "[0, 10, 20, 30, 40, 100, 90, 80, 70, 60, 50]", most);
    EXPECT_EQ(file->recorded_timesteps(), 11);
    return file->timesteps();
  };
  EXPECT_THAT(used(1), ElementsAre(50));
  EXPECT_THAT(used(2), ElementsAre(0, 100));
  EXPECT_THAT(used(3), ElementsAre(0, 50, 100));
  EXPECT_THAT(used(4), ElementsAre(0, 30, 70, 100));
  EXPECT_THAT(used(10), ElementsAre(0, 10, 20, 30, 40, 60, 70, 80, 90, 100));
  EXPECT_THAT(used(11).size(), 11);
  EXPECT_THAT(used(1'000'000).size(), 11);
}

TEST(Statistics, AreOneFileOfSafetensors) {
  const TempDir folder;
  const std::string metadata = test::statistics_metadata("[0, 1]");
  const std::string path = folder.write("s.safetensors", test::safetensors(means("w", 2, 3), metadata));
  const auto opened = Statistics::open(path, 128);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->columns("w"), 3);

  const std::string mlx =
      folder.write("s.mlx", R"({"version":"1.0","weights":{"w.x_mean":{"shape":[1],"dtype":"float32","data":[0]}}})");
  EXPECT_TRUE(fails(Statistics::open(mlx, 128), Errc::kUnsupported,
                    mlx + ": statistics must be one .safetensors file, not 1 of mlx-json"));
  folder.write("m/model-00001-of-00002.safetensors", test::safetensors(means("v", 2, 3), metadata));
  folder.write("m/model-00002-of-00002.safetensors", test::safetensors(means("w", 2, 3), metadata));
  EXPECT_TRUE(fails(Statistics::open(folder.path("m"), 128), Errc::kUnsupported,
                    folder.path("m") + ": statistics must be one .safetensors file, not 2 of safetensors"));
  EXPECT_EQ(Statistics::open(folder.path("none"), 128).error().code, Errc::kNotFound);
}

TEST(Statistics, ATruncatedFileIsCorrupt) {
  const TempDir folder;
  const std::string bytes = test::safetensors(means("w", 2, 3), test::statistics_metadata("[0, 1]"));
  for (const std::size_t size : {bytes.size() - 1, bytes.size() - 24, std::size_t{100}, std::size_t{7}}) {
    const auto opened = Statistics::open(folder.write("s.safetensors", bytes.substr(0, size)), 128);
    ASSERT_FALSE(opened) << size;
    EXPECT_EQ(opened.error().code, Errc::kCorrupt) << opened.error().message;
  }
}

TEST(Statistics, AFileCutShortAfterItWasOpenedIsAnError) {
  const TempDir folder;
  const std::string bytes = test::safetensors(means("w", 2, 3), test::statistics_metadata("[0, 1]"));
  const std::string path = folder.write("s.safetensors", bytes);
  const auto opened = Statistics::open(path, 128);
  ASSERT_TRUE(opened) << opened.error().message;
  std::filesystem::resize_file(path, bytes.size() - 24);
  EXPECT_FALSE(opened->read("w"));
}

TEST(Statistics, HessianIsReadInRows) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const StatisticsFile file({floats("w.x_mean", {3}), floats("w.x_sqmean", {3}),
                             floats("w.hessian", {3, 3}, {1, -2, 3, -2, 5, 6, 3, 6, 9}), floats("v.x_mean", {2}),
                             floats("v.x_sqmean", {2}), floats("v.hessian", {2, 2}, {1, nan, nan, -1})});
  ASSERT_TRUE(file.result()) << file.result().error().message;
  std::vector<float> rows(6);
  ASSERT_TRUE(file->read_hessian("w", 1, rows));
  EXPECT_THAT(rows, ElementsAre(-2, 5, 6, 3, 6, 9));
  EXPECT_TRUE(file->read_hessian("w", 3, {}));
  EXPECT_TRUE(fails(file->read_hessian("w", 2, rows), Errc::kInvalidArgument,
                    "s: tensor 'w.hessian': 6 values from row 2 on, but the Hessian has 3 rows and columns"));
  EXPECT_TRUE(fails(file->read_hessian("w", 4, {}), Errc::kInvalidArgument,
                    "s: tensor 'w.hessian': 0 values from row 4 on, but the Hessian has 3 rows and columns"));
  EXPECT_TRUE(fails(file->read_hessian("w", 0, std::span(rows).first(4)), Errc::kInvalidArgument,
                    "s: tensor 'w.hessian': 4 values from row 0 on, but the Hessian has 3 rows and columns"));
  EXPECT_TRUE(fails(file->read_hessian("x", 0, rows), Errc::kNotFound, "s: no Hessian for 'x'"));
  EXPECT_TRUE(fails(file->read_hessian("v", 0, std::span(rows).first(2)), Errc::kCorrupt,
                    "s: tensor 'v.hessian': nan in row 0, column 1"));
}

TEST(Statistics, HessianHasNoNegativeDiagonal) {
  const StatisticsFile file({floats("w.x_mean", {2}), floats("w.x_sqmean", {2}), floats("w.hessian", {2, 2}, {1, -1, -1, -1})});
  std::vector<float> rows(4);
  EXPECT_TRUE(fails(file->read_hessian("w", 0, rows), Errc::kCorrupt, "s: tensor 'w.hessian': -1 in row 1, column 1"));
}

// A model m of zeros, with plans for it.
class Planned {
 public:
  explicit Planned(const std::vector<TensorText>& tensors, const QuantizeConfig& config = {})
      : bytes_(test::safetensors(tensors)),
        model_(*Model::from_bytes(test::as_bytes(bytes_), "m")),
        plan_(*Plan::make(model_, config)) {}

  Result<void> check(const StatisticsFile& file) const { return file->check_fits(model_, plan_.layers()); }
  Coverage coverage(const StatisticsFile& file) const { return file->coverage(model_, plan_.layers()); }

 private:
  std::string bytes_;
  Model model_;
  Plan plan_;
};

StatisticsFile plain(std::string_view weight, std::uint64_t columns) {
  return StatisticsFile(
      std::vector{floats(fmt::format("{}.x_mean", weight), {columns}), floats(fmt::format("{}.x_sqmean", weight), {columns})});
}

TEST(Statistics, MustBeOfTensorsThatTheModelHas) {
  const Planned model({{"a.weight", DType::kBF16, {4, 64}}});
  EXPECT_TRUE(model.check(plain("a.weight", 64)));
  EXPECT_TRUE(fails(model.check(plain("a", 64)), Errc::kCorrupt, "s: has statistics for tensor 'a', which m does not have"));
}

TEST(Statistics, MustHaveTheColumnsThatAreQuantized) {
  const std::vector<TensorText> conv{{"experts", DType::kBF16, {2, 3, 64}}};
  EXPECT_TRUE(Planned(conv).check(plain("experts", 192)));
  EXPECT_TRUE(fails(Planned(conv).check(plain("experts", 64)), Errc::kCorrupt,
                    "s: has statistics for tensor 'experts' with 64 columns, in m it has 192"));
  const QuantizeConfig mlx{.group_size = 64, .format = QuantizeFormat::kMlx};
  EXPECT_TRUE(Planned(conv, mlx).check(plain("experts", 64)));
  EXPECT_TRUE(fails(Planned(conv, mlx).check(plain("experts", 192)), Errc::kCorrupt,
                    "s: has statistics for tensor 'experts' with 192 columns, in m it has 64"));
}

TEST(Statistics, OfUnquantizedTensorsMayUseEitherShape) {
  const Planned model({{"conv", DType::kI8, {2, 3, 5}}, {"norm", DType::kBF16, {7}}, {"scale", DType::kBF16, {}}});
  EXPECT_TRUE(model.check(plain("conv", 5)));
  EXPECT_TRUE(model.check(plain("conv", 15)));
  EXPECT_TRUE(model.check(plain("norm", 7)));
  EXPECT_TRUE(model.check(plain("scale", 1)));
  EXPECT_TRUE(fails(model.check(plain("conv", 3)), Errc::kCorrupt,
                    "s: has statistics for tensor 'conv' with 3 columns, in m it has shape [2, 3, 5]"));
}

TEST(Statistics, ListUncoveredLayers) {
  const Planned model({{"a.weight", DType::kBF16, {4, 64}},
                       {"b.weight", DType::kBF16, {4, 64}},
                       {"c.weight", DType::kBF16, {4, 64}},
                       {"norm", DType::kBF16, {64}}});
  const Coverage coverage = model.coverage(plain("b.weight", 64));
  EXPECT_EQ(coverage.quantized, 3);
  EXPECT_EQ(coverage.covered, 1);
  EXPECT_THAT(coverage.uncovered, ElementsAre("a.weight", "c.weight"));
  EXPECT_EQ(model.coverage(plain("norm", 64)).covered, 0);
}

}  // namespace
}  // namespace ballast
