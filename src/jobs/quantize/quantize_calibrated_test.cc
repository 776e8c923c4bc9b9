// Quantizing with statistics of activations.

#include <ballast/quantize.h>

#include <cmath>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/convert.h>
#include <ballast/quantized_weights.h>
#include <ballast/time_aware.h>

#include "tests/support/files.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kColumns = 128;
constexpr std::uint64_t kRows = 40;

// A layer whose inputs have some large columns, with statistics of four timesteps of which the last two have other means, and a
// second layer of which nothing is known.
class Calibrated : public testing::TestWithParam<QuantizeFormat> {
 protected:
  Calibrated() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float> weights(kRows * kColumns);
    for (float& weight : weights) weight = normal(random);
    for (std::size_t i = 7; i < weights.size(); i += kColumns) weights[i] *= 6;
    dir_.write("in/model.safetensors", test::safetensors({{"a.weight", DType::kF32, {kRows, kColumns}, test::raw(weights)},
                                                          {"b.weight", DType::kF32, {kRows, kColumns}, test::raw(weights)}}));
    record(false);
  }

  void record(bool hessian) const {
    std::vector<float> means;
    std::vector<float> squares;
    for (int time = 0; time < 4; ++time) {
      for (std::size_t i = 0; i < kColumns; ++i) {
        const float size = i % 16 == 3 ? 10 : 1;
        means.push_back(time < 2 ? size : -size);
        squares.push_back(2 * size * size);
      }
    }
    const auto at_each = [](float value) { return test::raw(std::vector<float>(4, value)); };
    std::vector<test::TensorText> tensors{{"a.weight.x_mean", DType::kF32, {4, kColumns}, test::raw(means)},
                                          {"a.weight.x_sqmean", DType::kF32, {4, kColumns}, test::raw(squares)},
                                          {"a.weight.count", DType::kF32, {4}, at_each(1000)},
                                          {"a.weight.x_min", DType::kF32, {4}, at_each(-1)},
                                          {"a.weight.x_max", DType::kF32, {4}, at_each(1.55F)}};
    std::vector<float> products(kColumns * kColumns);
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) {
        products[i * kColumns + j] = std::sqrt(squares[i] * squares[j]) * (i == j ? 1.0F : 0.4F);
      }
    }
    if (hessian) tensors.push_back({"a.weight.hessian", DType::kF32, {kColumns, kColumns}, test::raw(products)});
    dir_.write("statistics.safetensors", test::safetensors(tensors, R"({"format":"timecalib.v1","timesteps":"[0,10,20,30]"})"));
  }

  Result<QuantizeReport> quantize(const QuantizeConfig& config, const std::string& out = "out") const {
    const auto model = Model::open(dir_.path("in"));
    QuantizeOptions options{.config = config, .calibration = dir_.path("statistics.safetensors"), .sync = false};
    options.config.format = GetParam();
    options.config.group_size = 64;
    return quantize_model(*model, dir_.path(out), options);
  }

  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_.path(folder))) {
      found.emplace(entry.path().filename().string(), test::content(entry.path().string()));
    }
    return found;
  }

  test::TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Formats, Calibrated, testing::Values(QuantizeFormat::kParquet, QuantizeFormat::kMlx),
                         [](const auto& format) { return std::string(name(format.param)); });

TEST_P(Calibrated, LowersTheErrorOfOutputs) {
  const auto rtn = quantize({.method = QuantizeMethod::kRtn});
  const auto weighted = quantize({});
  record(true);
  const auto gptq = quantize({});
  ASSERT_TRUE(rtn && weighted && gptq);
  EXPECT_EQ(rtn->layers[0].method, "rtn");
  EXPECT_EQ(weighted->layers[0].method, "weighted search");
  EXPECT_EQ(weighted->layers[1].method, "auto");
  EXPECT_EQ(gptq->layers[0].method, "gptq");
  EXPECT_LT(*weighted->layers[0].quality.output_error, 0.7 * *rtn->layers[0].quality.output_error);
  EXPECT_LT(*gptq->layers[0].quality.output_error, *weighted->layers[0].quality.output_error);
  EXPECT_FALSE(weighted->layers[1].quality.output_error);
  EXPECT_EQ(weighted->calibration->covered, 1U);
  EXPECT_THAT(weighted->calibration->uncovered, ElementsAre("b.weight"));
}

TEST_P(Calibrated, HasParametersForEachGroupOfTimesteps) {
  const auto report = quantize({.enable_time_aware = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->calibration->time_groups, 2U);
  EXPECT_THAT(report->calibration->boundaries, ElementsAre(20));

  const auto weights = Weights::open(dir_.path("out"));
  ASSERT_TRUE(weights) << weights.error().message;
  const auto loaded = weights->time_aware();
  ASSERT_TRUE(loaded) << loaded.error().message;
  const TimeAware& times = loaded->value();
  EXPECT_THAT(times.layers(), ElementsAre("a.weight"));
  EXPECT_EQ(times.group_of(-5), 0U);
  EXPECT_EQ(times.group_of(19.9), 0U);
  EXPECT_EQ(times.group_of(20), 1U);
  EXPECT_FALSE(times.at("b.weight", 0));
  const TimeParameters early = times.at("a.weight", 0).value();
  const TimeParameters late = times.at("a.weight", 25).value();
  ASSERT_EQ(early.bias.size(), kRows);
  EXPECT_FLOAT_EQ(early.activation_scale.value(), 0.01F);
  EXPECT_EQ(early.activation_zero, 100);
  ASSERT_TRUE(dequantize_model(dir_.path("out"), dir_.path("back.safetensors")));
  const auto before = Model::open(dir_.path("in"))->read("a.weight");
  const auto after = Model::open(dir_.path("back.safetensors"))->read("a.weight");
  const auto from = before->view().as<float>().value();
  const auto to = after->view().as<float>().value();
  for (std::size_t row = 0; row < kRows; ++row) {
    double shift = 0;
    for (std::size_t i = 0; i < kColumns; ++i)
      shift += (to[row * kColumns + i] - from[row * kColumns + i]) * (i % 16 == 3 ? 10.0 : 1.0);
    if (early.bias[row] == 0) continue;
    EXPECT_NEAR(early.bias[row], -shift, 1e-5);
    EXPECT_FLOAT_EQ(late.bias[row], -early.bias[row]);
  }
}

TEST_P(Calibrated, ScalesColumnsAndRestoresThem) {
  const auto plain = quantize({.enable_spatial = false}, "plain");
  const auto report = quantize({.enable_spatial = true});
  ASSERT_TRUE(plain && report);
  ASSERT_TRUE(report->layers[0].equalized);
  EXPECT_FALSE(report->layers[1].equalized);
  EXPECT_LT(*report->layers[0].quality.output_error, *plain->layers[0].quality.output_error);

  const auto model = Model::open(dir_.path("in"));
  const auto validated = validate_model(*model, dir_.path("out"));
  ASSERT_TRUE(validated) << validated.error().message;
  EXPECT_TRUE(validated->layers[0].equalized);
  EXPECT_EQ(validated->layers[0].quality.relative_rmse, report->layers[0].quality.relative_rmse);
  EXPECT_LT(validated->layers[0].quality.relative_rmse, 0.3);
  if (GetParam() == QuantizeFormat::kParquet) return;
  // What restores the columns goes along, or is missed.
  ASSERT_TRUE(convert_model(*Model::open(dir_.path("out")), dir_.path("copy")));
  EXPECT_EQ(validate_model(*model, dir_.path("copy"))->layers[0].quality.relative_rmse, report->layers[0].quality.relative_rmse);
  fs::remove(dir_.path("copy/equalization.safetensors"));
  const auto missed = validate_model(*model, dir_.path("copy"));
  ASSERT_FALSE(missed);
  EXPECT_THAT(missed.error().message, HasSubstr("equalization.safetensors: missing"));
  ASSERT_TRUE(dequantize_model(dir_.path("out"), dir_.path("back.safetensors")));
  const auto weights = load_quantized_weights(dir_.path("out"));
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->find("a")->restore.size(), kColumns);
  const auto loaded = weights->dequantize("a", DType::kF32);
  const auto back = Model::open(dir_.path("back.safetensors"))->read("a.weight");
  EXPECT_TRUE(std::ranges::equal(loaded->bytes(), back->bytes()));
}

TEST_P(Calibrated, ThreadsAndInstructionSetsDoNotChangeAByte) {
  for (const bool hessian : {false, true}) {
    record(hessian);
    std::map<std::string, std::string> expected;
    const QuantizeConfig config{.enable_time_aware = true, .enable_spatial = true};
    for (const auto set : test::instruction_sets()) {
      const test::OnlyInstructionSet only(set);
      QuantizeConfig threads = config;
      threads.num_threads = expected.empty() ? 1 : 3;
      ASSERT_TRUE(quantize(threads));
      if (expected.empty()) expected = files("out");
      EXPECT_EQ(files("out"), expected);
    }
  }
}

TEST_P(Calibrated, FitsASize) {
  QuantizeConfig config;
  config.target_model_size = 81'000;
  const auto report = quantize(config);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_LE(report->bytes, 81'000U);
  EXPECT_THAT(report->layers, Each(testing::Field(&LayerReport::bits, testing::Ge(2U))));
  config.target_model_size = 1'000;
  const auto refused = quantize(config, "none");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("the smallest possible is"));
  EXPECT_FALSE(fs::exists(dir_.path("none")));
}

TEST_P(Calibrated, RefusesStatisticsOfAnotherModel) {
  dir_.write("statistics.safetensors", test::safetensors({{"c.weight.x_mean", DType::kF32, {2}, test::raw<float>({1, 1})},
                                                          {"c.weight.x_sqmean", DType::kF32, {2}, test::raw<float>({1, 1})}},
                                                         R"({"format":"timecalib.v1"})"));
  const auto refused = quantize({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("'c.weight'"));
  EXPECT_FALSE(fs::exists(dir_.path("out")));
}

}  // namespace
}  // namespace ballast
