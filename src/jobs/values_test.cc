#include <ballast/values.h>

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;
using test::safetensors;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string vector_of(DType dtype, std::uint64_t count, std::string_view data) {
  return test::one_tensor(dtype, fmt::format("[{}]", count), data);
}

std::optional<TensorStats> stats_of(DType dtype, std::uint64_t count, std::string_view data, const StatsOptions& options = {}) {
  const std::string file = vector_of(dtype, count, data);
  const auto model = Model::from_bytes(as_bytes(file));
  EXPECT_TRUE(model) << model.error().message;
  const std::array<std::string_view, 1> names{"t"};
  const auto stats = compute_stats(*model, names, options);
  EXPECT_TRUE(stats) << stats.error().message;
  return stats->front();
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Stats, ComputesKnownValues) {
  const auto stats = stats_of(DType::kF32, 8, raw({2.0F, 4.0F, 4.0F, 4.0F, 5.0F, 5.0F, 7.0F, 9.0F}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->count, 8);
  EXPECT_EQ(stats->zeros, 0);
  EXPECT_EQ(stats->finite(), 8);
  EXPECT_EQ(stats->min, 2);
  EXPECT_EQ(stats->max, 9);
  EXPECT_EQ(stats->mean, 5);
  EXPECT_EQ(stats->deviation, 2);
  EXPECT_DOUBLE_EQ(stats->l2_norm, std::sqrt(232.0));
  EXPECT_FALSE(stats->constant());
}

TEST(Stats, HistogramHasEqualBinsFromMinToMax) {
  const auto stats = stats_of(DType::kU8, 18, std::string("\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\20", 18));
  ASSERT_TRUE(stats);
  EXPECT_THAT(stats->histogram, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3));
}

TEST(Stats, HistogramIsLeftOutOnRequest) {
  const auto stats = stats_of(DType::kU8, 3, "abc", {.histogram = false});
  ASSERT_TRUE(stats);
  EXPECT_THAT(stats->histogram, ::testing::Each(0));
  EXPECT_EQ(stats->max, 'c');
}

TEST(Stats, NanAndInfinityAreCountedAndLeftOut) {
  const auto stats = stats_of(DType::kF32, 7, raw({1.0F, kNan, -3.0F, kInf, -kInf, 0.0F, -kNan}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->count, 7);
  EXPECT_EQ(stats->nans, 2);
  EXPECT_EQ(stats->infinities, 2);
  EXPECT_EQ(stats->zeros, 1);
  EXPECT_EQ(stats->finite(), 3);
  EXPECT_EQ(stats->min, -3);
  EXPECT_EQ(stats->max, 1);
  EXPECT_DOUBLE_EQ(stats->mean, -2.0 / 3);
  EXPECT_DOUBLE_EQ(stats->l2_norm, std::sqrt(10.0));
  EXPECT_EQ(std::accumulate(stats->histogram.begin(), stats->histogram.end(), std::uint64_t{0}), 3);
}

TEST(Stats, NothingFiniteGivesNaN) {
  const auto stats = stats_of(DType::kF32, 2, raw({kNan, kInf}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->finite(), 0);
  for (const double figure : {stats->min, stats->max, stats->mean, stats->deviation, stats->l2_norm}) {
    EXPECT_TRUE(std::isnan(figure));
  }
  EXPECT_FALSE(stats->constant());
}

TEST(Stats, ConstantTensorIsConstant) {
  const auto stats = stats_of(DType::kF32, 4, raw({0.1F, 0.1F, 0.1F, 0.1F}));
  ASSERT_TRUE(stats);
  EXPECT_TRUE(stats->constant());
  EXPECT_EQ(stats->deviation, 0);
  EXPECT_EQ(stats->histogram[0], 4);
}

TEST(Stats, BothZeroesAreZero) {
  const auto stats = stats_of(DType::kF32, 3, raw({0.0F, -0.0F, 0.0F}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->zeros, 3);
  EXPECT_TRUE(stats->constant());
  EXPECT_EQ(stats->l2_norm, 0);
}

TEST(Stats, OneValueIsNotConstant) { EXPECT_FALSE(stats_of(DType::kF32, 1, raw({1.0F}))->constant()); }

TEST(Stats, EmptyTensorHasNoValues) {
  const auto stats = stats_of(DType::kF32, 0, "");
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->count, 0);
  EXPECT_EQ(stats->finite(), 0);
}

TEST(Stats, PackedValuesAreCountedOneByOne) {
  const auto stats = stats_of(DType::kF4, 4, "\x72\xf0");
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->count, 4);
  EXPECT_EQ(stats->min, -6);
  EXPECT_EQ(stats->max, 6);
  EXPECT_EQ(stats->zeros, 1);
  EXPECT_EQ(stats->mean, 0.25);
}

TEST(Stats, ComplexValuesCountAsTwo) {
  const auto stats = stats_of(DType::kC64, 2, raw({1.0F, 2.0F, 3.0F, 6.0F}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->count, 4);
  EXPECT_EQ(stats->mean, 3);
}

TEST(Stats, F6HasNoStatistics) { EXPECT_EQ(stats_of(DType::kF6E2M3, 4, "abc").has_value(), false); }

TEST(Stats, HistogramOfTheWholeRangeOfDoublesStaysInItsBins) {
  constexpr double kMax = std::numeric_limits<double>::max();
  const auto stats = stats_of(DType::kF64, 3, raw({-kMax, 0.0, kMax}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->histogram[0], 1);
  EXPECT_EQ(stats->histogram[8], 1);
  EXPECT_EQ(stats->histogram[15], 1);
}

TEST(Stats, HistogramOfTheSmallestDoublesStaysInItsBins) {
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  const auto stats = stats_of(DType::kF64, 3, raw({0.0, kTiny, 2 * kTiny}));
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->histogram[0], 1);
  EXPECT_EQ(stats->histogram[8], 1);
  EXPECT_EQ(stats->histogram[15], 1);
}

// Several blocks, the last of them odd.
std::string noise(std::size_t count) {
  std::minstd_rand random(7);
  std::string data(count * sizeof(float), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random() % 2'000'001) / 1e6F - 1.0F + (i % 1000 == 0 ? 100.0F : 0.0F);
    std::memcpy(data.data() + i * sizeof(float), &value, sizeof(float));
  }
  return data;
}

TEST(Stats, ResultsDoNotDependOnTheThreadCount) {
  constexpr std::size_t kCount = 1'300'007;
  const std::string data = noise(kCount);
  const auto one = stats_of(DType::kF32, kCount, data, {.work = {.threads = 1}});
  ASSERT_TRUE(one);
  for (const unsigned threads : {0U, 2U, 3U, 7U}) {
    const auto many = stats_of(DType::kF32, kCount, data, {.work = {.threads = threads}});
    ASSERT_TRUE(many);
    EXPECT_EQ(many->count, one->count);
    EXPECT_EQ(many->zeros, one->zeros);
    EXPECT_EQ(many->min, one->min);
    EXPECT_EQ(many->max, one->max);
    EXPECT_EQ(many->mean, one->mean);
    EXPECT_EQ(many->deviation, one->deviation);
    EXPECT_EQ(many->l2_norm, one->l2_norm);
    EXPECT_EQ(many->histogram, one->histogram);
  }
}

TEST(Stats, LongTensorsMatchAPlainSum) {
  constexpr std::size_t kCount = 1'300'007;
  const std::string data = noise(kCount);
  const auto stats = stats_of(DType::kF32, kCount, data);
  ASSERT_TRUE(stats);
  long double sum = 0;
  long double squares = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(float), sizeof(float));
    sum += value;
    squares += static_cast<long double>(value) * value;
  }
  const auto mean = static_cast<double>(sum / kCount);
  EXPECT_NEAR(stats->mean, mean, 1e-12);
  EXPECT_NEAR(stats->l2_norm, std::sqrt(static_cast<double>(squares)), 1e-8);
  EXPECT_NEAR(stats->deviation, std::sqrt(static_cast<double>(squares / kCount) - mean * mean), 1e-10);
  EXPECT_EQ(std::accumulate(stats->histogram.begin(), stats->histogram.end(), std::uint64_t{0}), kCount);
}

TEST(Stats, MissingTensorIsNotFound) {
  const std::string file = safetensors("{}");
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model);
  const std::array<std::string_view, 1> names{"\x1b"};
  EXPECT_TRUE(fails(compute_stats(*model, names), Errc::kNotFound, R"(<memory>: no tensor '\x1b' among 0)"));
}

TEST(Stats, ProgressReachesTheTotalAndMayCancel) {
  const std::string file = vector_of(DType::kU8, 3, "abc");
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model);
  const std::array<std::string_view, 1> names{"t"};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  const Progress watch = [&](std::uint64_t done, std::uint64_t total, std::string_view what) {
    EXPECT_EQ(what, "t");
    seen.emplace_back(done, total);
    return true;
  };
  ASSERT_TRUE(compute_stats(*model, names, {.work = {.progress = watch}}));
  EXPECT_THAT(seen, ElementsAre(::testing::Pair(3, 6), ::testing::Pair(6, 6)));
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  EXPECT_TRUE(fails(compute_stats(*model, names, {.work = {.progress = stop}}), Errc::kCancelled, "cancelled"));
}

TEST(Stats, FileCutShortIsAnError) {
  const test::TempDir dir;
  const std::string path = dir.write("m.safetensors", vector_of(DType::kU8, 3, "abc"));
  const auto model = Model::open(path);
  ASSERT_TRUE(model) << model.error().message;
  const std::uint64_t size = model->file_size();
  std::filesystem::resize_file(path, size - 1);
  const std::array<std::string_view, 1> names{"t"};
  EXPECT_TRUE(
      fails(compute_stats(*model, names), Errc::kIo,
            fmt::format("{}: tensor 't': file was truncated while open: it has {} bytes, it had {}", path, size - 1, size)));
}

constexpr std::array<std::uint64_t, 2> kMatrix{10, 10};
constexpr TensorInfo kWeight{.name = "w", .shape = kMatrix, .dtype = DType::kF32};
constexpr TensorStats kSound{.count = 100, .min = -1, .max = 1, .l2_norm = 5};

TEST(CheckValues, SoundValuesPass) { EXPECT_THAT(check_values(kWeight, kSound), IsEmpty()); }

TEST(CheckValues, NanAndInfinityAreReportedForEveryTensor) {
  TensorStats stats = kSound;
  stats.nans = 3;
  stats.infinities = 2;
  EXPECT_THAT(check_values(TensorInfo{.dtype = DType::kF16}, stats),
              ElementsAre("3 of 100 values are NaN", "2 of 100 values are infinite"));
  EXPECT_THAT(check_values(kWeight, stats, {.allow_nan = true, .allow_infinity = true}), IsEmpty());
}

TEST(CheckValues, ConstantWeightsAreReportedOnce) {
  const TensorStats zeros{.count = 100, .zeros = 100};
  EXPECT_THAT(check_values(kWeight, zeros), ElementsAre("all 100 values are 0"));
  EXPECT_THAT(check_values(kWeight, {.count = 100, .min = 0.5, .max = 0.5, .l2_norm = 5}), ElementsAre("all 100 values are 0.5"));
  EXPECT_THAT(check_values(kWeight, zeros, {.allow_constant = true}),
              ElementsAre("100 of 100 values are zero, more than 0.9999", "L2 norm is 0, less than 1e-09"));
  EXPECT_THAT(check_values(kWeight, zeros, {.allow_constant = true, .max_zero_share = 1, .min_l2_norm = 0}), IsEmpty());
}

TEST(CheckValues, ShareOfZeroesAndNormHaveLimits) {
  TensorStats stats = kSound;
  stats.zeros = 60;
  EXPECT_THAT(check_values(kWeight, stats, {.max_zero_share = 0.5}), ElementsAre("60 of 100 values are zero, more than 0.5"));
  EXPECT_THAT(check_values(kWeight, stats, {.max_zero_share = 0.6}), IsEmpty());
  EXPECT_THAT(check_values(kWeight, stats, {.min_l2_norm = 5.5}), ElementsAre("L2 norm is 5, less than 5.5"));
}

TEST(CheckValues, BiasesIntegersAndSingleValuesMayBeConstant) {
  const TensorStats zeros{.count = 100, .zeros = 100};
  EXPECT_THAT(check_values({.shape = Shape(kMatrix).first(1), .dtype = DType::kF32}, zeros), IsEmpty());
  EXPECT_THAT(check_values({.shape = kMatrix, .dtype = DType::kI32}, zeros), IsEmpty());
  EXPECT_THAT(check_values(kWeight, {.count = 1, .zeros = 1}), IsEmpty());
}

}  // namespace
}  // namespace ballast
