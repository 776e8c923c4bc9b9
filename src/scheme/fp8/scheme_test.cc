#include <numeric>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::raw;
using test::TensorText;
using ::testing::ElementsAre;
using enum DType;

constexpr std::string_view kBlocks =
    R"({"dtype": "float32", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
constexpr std::string_view kFp8 = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": null}})";

std::string ones(std::uint64_t count) { return std::string(count, '\x38'); }  // of E4M3

std::vector<float> counted(std::uint64_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(Fp8, RaggedBlocksHaveTheScaleOfTheirBlock) {
  constexpr std::uint64_t kRows = 576;
  constexpr std::uint64_t kColumns = 320;
  const Checkpoint model(
      {{"a.weight", kF8E4M3, {kRows, kColumns}, ones(kRows * kColumns)}, {"a.weight_scale_inv", kF32, {5, 3}, raw(counted(15))}},
      kBlocks);
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->scheme(), "fp8");
  const Weight& weight = *weights->find("a.weight");
  EXPECT_EQ(weight.dtype, kF32);
  EXPECT_EQ(weight.storage.mode, "block");
  EXPECT_EQ(weight.storage.bits, 8U);
  EXPECT_EQ(weight.storage.group_size, 128U);
  const std::vector<float> values = model.values("a.weight");
  for (std::uint64_t r = 0; r < kRows; ++r) {
    for (std::uint64_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(values[r * kColumns + c], static_cast<float>(r / 128 * 3 + c / 128 + 1)) << r << ' ' << c;
    }
  }
  EXPECT_EQ(model.values_by_row("a.weight"), values);
}

TEST(Fp8, GoldenValues) {
  const Checkpoint model({{"a.weight", kF8E4M3, {2, 4}, "\x01\x38\x74\x7E\x81\xB8\xF4\xFE"},
                          {"a.weight_scale", kF32, {}, raw({0.5F})},
                          {"b.weight", kF8E5M2, {1, 2}, "\x3C\xC0"},
                          {"b.weight_scale_inv", kBF16, {1, 1}, std::string("\x80\x40", 2)}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_THAT(model.values("a.weight"), ElementsAre(0x1p-10F, 0.5F, 96, 224, -0x1p-10F, -0.5F, -96, -224));
  EXPECT_THAT(model.values("b.weight"), ElementsAre(4, -8));
  EXPECT_EQ(weights->find("a.weight")->storage.mode, "tensor");
  EXPECT_EQ(weights->find("a.weight")->dtype, kBF16);
}

struct Names {
  std::string_view scale;
  std::string_view input;
  std::vector<std::uint64_t> shape;
};

TEST(Fp8, OneScalePerTensorUnderAnyName) {
  for (const Names& names : {Names{"weight_scale", "input_scale", {}},
                             {"weight_scale", "input_scale", {1}},
                             {"weight_scale_inv", "activation_scale", {}},
                             {"qscale_weight", "qscale_act", {}}}) {
    for (const std::string_view config : {std::string_view(), kFp8}) {
      const Checkpoint model({{"a.weight", kF8E4M3, {1, 2}, "\x38\x40"},
                              {fmt::format("a.{}", names.scale), kF32, names.shape, raw({3.0F})},
                              {fmt::format("a.{}", names.input), kF32, names.shape, raw({5.0F})},
                              {"attn.k_scale", kF32, {}, raw({1.0F})}},
                             config);
      const auto& weights = model.weights();
      ASSERT_TRUE(weights) << weights.error().message;
      EXPECT_THAT(model.values("a.weight"), ElementsAre(3, 6)) << names.scale;
      EXPECT_THAT(weights->dropped(), ElementsAre(fmt::format("a.{}", names.input), "attn.k_scale"));
      EXPECT_EQ(weights->weights().size(), 1U);
    }
  }
}

TEST(Fp8, FbgemmHasOneScalePerRow) {
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{2, 1}, {2}}) {
    const Checkpoint model({{"a.weight", kF8E4M3, {2, 2}, ones(4)},
                            {"a.weight_scale", kF32, shape, raw({3.0F, 5.0F})},
                            {"a.input_scale_ub", kF32, {1}, raw({1200.0F})}},
                           R"({"quantization_config": {"quant_method": "fbgemm_fp8"}})");
    const auto& weights = model.weights();
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_THAT(model.values("a.weight"), ElementsAre(3, 3, 5, 5));
    EXPECT_EQ(weights->find("a.weight")->storage.mode, "channel");
    EXPECT_THAT(weights->dropped(), ElementsAre("a.input_scale_ub"));
  }
}

TEST(Fp8, Mxfp8HasAnExponentForEach32Columns) {
  for (const DType dtype : {kU8, kF8E8M0}) {
    const Checkpoint model({{"a.weight", kF8E4M3, {2, 64}, ones(128)}, {"a.weight_scale_inv", dtype, {2, 2}, "\x7F\x80\x7E\x81"}},
                           R"({"quantization_config": {"quant_method": "mxfp8"}})");
    const auto& weights = model.weights();
    ASSERT_TRUE(weights) << weights.error().message;
    const std::vector<float> values = model.values("a.weight");
    EXPECT_THAT((std::vector{values[0], values[32], values[64], values[127]}), ElementsAre(1, 2, 0.5F, 4));
    EXPECT_EQ(weights->find("a.weight")->storage.group_size, 32U);
  }
}

TEST(Fp8, StackedExperts) {
  const Checkpoint model({{"experts.a", kF8E4M3, {2, 130, 2}, ones(520)},
                          {"experts.a_scale_inv", kF32, {2, 2, 1}, raw({1.0F, 2.0F, 3.0F, 4.0F})},
                          {"experts.b", kF8E4M3, {2, 1, 2}, ones(4)},
                          {"experts.b_scale", kF32, {2}, raw({5.0F, 6.0F})},
                          {"experts.c", kF8E4M3, {2, 1, 2}, ones(4)},
                          {"experts.c_scale_inv", kF32, {}, raw({7.0F})},
                          {"experts.c_input_scale", kF32, {}, raw({7.0F})}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> a = model.values("experts.a");
  EXPECT_THAT((std::vector{a[0], a[255], a[256], a[259], a[260], a[515], a[516]}), ElementsAre(1, 1, 2, 2, 3, 3, 4));
  EXPECT_EQ(model.values_by_row("experts.a"), a);
  EXPECT_THAT(model.values("experts.b"), ElementsAre(5, 5, 6, 6));
  EXPECT_THAT(model.values("experts.c"), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(weights->dropped(), ElementsAre("experts.c_input_scale"));
}

TEST(Fp8, WeightsOfConvolutionsHaveOneScale) {
  const Checkpoint model({{"a.weight", kF8E4M3, {2, 1, 1, 2}, ones(4)}, {"a.weight_scale", kF32, {1}, raw({2.0F})}}, kFp8);
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_THAT(model.values("a.weight"), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(weights->find("a.weight")->rows, 2U);
}

TEST(Fp8, DeepSeekV4NamesItsScalesScale) {
  std::string pairs = "\xA1\xF7\x83\xE5";  // .5 -1 6 -6 1.5 -0 3 -4
  pairs.resize(16);
  for (const std::string_view config : {std::string_view(), kBlocks}) {
    const Checkpoint model({{"a.weight", kF8E4M3, {129, 2}, ones(258)},
                            {"a.scale", kF8E8M0, {2, 1}, "\x80\x81"},
                            {"e.weight", kI8, {1, 16}, pairs},
                            {"e.scale", kF8E8M0, {1, 1}, "\x80"}},
                           config);
    const auto& weights = model.weights();
    ASSERT_TRUE(weights) << weights.error().message;
    const std::vector<float> values = model.values("a.weight");
    EXPECT_EQ(values[255], 2);
    EXPECT_EQ(values[256], 4);
    EXPECT_THAT(weights->find("e.weight")->shape, ElementsAre(1, 32));
    EXPECT_EQ(weights->find("e.weight")->storage.bits, 4U);
    std::vector<float> expected{1, -2, 12, -12, 3, -0.0F, 6, -8};
    expected.resize(32);
    EXPECT_EQ(model.values("e.weight"), expected);
  }
  EXPECT_TRUE(
      Checkpoint({{"e.weight", kI8, {2, 16}}, {"e.scale", kF8E8M0, {2, 2}}})
          .refused(Errc::kCorrupt,
                   "tensor 'e.scale': shape is [2, 2], expected [2, 1]: 'e.weight' has 2 rows and 32 columns in groups of 32"));
}

TEST(Fp8, WrongNumberOfBlocksIsCorrupt) {
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kF8E4M3, {576, 320}}, {"a.weight_scale_inv", kF32, {4, 3}}}, kBlocks)
          .refused(
              Errc::kCorrupt,
              "tensor 'a.weight_scale_inv': shape is [4, 3], expected [5, 3]: 'a.weight' is [576, 320] in blocks of 128 x 128"));
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kF8E4M3, {576, 320}}, {"a.weight_scale_inv", kF32, {1, 1}}}, kBlocks)
          .refused(
              Errc::kCorrupt,
              "tensor 'a.weight_scale_inv': shape is [1, 1], expected [5, 3]: 'a.weight' is [576, 320] in blocks of 128 x 128"));
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kF8E4M3, {4, 4}}, {"a.weight_scale_inv", kF32, {2, 1}}},
                 R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}})")
          .refused(Errc::kCorrupt,
                   "tensor 'a.weight_scale_inv': shape is [2, 1], expected [2, 2]: 'a.weight' is [4, 4] in blocks of 2 x 2"));
}

TEST(Fp8, DeclaredWithoutScalesIsCorrupt) {
  EXPECT_TRUE(Checkpoint({{"a.weight", kF8E4M3, {2, 2}}}, kFp8)
                  .refused(Errc::kCorrupt, "tensor 'a.weight': dtype is F8_E4M3, but 'a.weight_scale_inv' is missing"));
}

TEST(Fp8, DeclaredOfOtherDtypesIsCorrupt) {
  const Checkpoint model({{"a.weight", kBF16, {2, 2}}}, kFp8);
  EXPECT_TRUE(fails(model.weights(), Errc::kCorrupt,
                    model.path() +
                        ": config.json: quantization_config says 'fp8', but no tensor is F8; remove the section if the "
                        "weights are not quantized"));
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kBF16, {2, 2}}, {"a.weight_scale_inv", kF32, {1, 1}}}, kFp8)
          .refused(Errc::kCorrupt,
                   "tensor 'a.weight': dtype is BF16 and shape [2, 2], but 'a.weight_scale_inv' expects a matrix of F8_E4M3"));
}

TEST(Fp8, OrphansAreCorrupt) {
  const std::vector<TensorText> whole{{"a.weight", kF8E4M3, {2, 2}}, {"a.weight_scale", kF32, {}}};
  for (const std::string_view name : {"b.weight_scale_inv", "b.weight_scale", "b.qscale_weight"}) {
    std::vector<TensorText> tensors = whole;
    tensors.emplace_back(name, kF32, std::vector<std::uint64_t>{});
    EXPECT_TRUE(Checkpoint(tensors).refused(Errc::kCorrupt, fmt::format("tensor '{}': 'b.weight' is missing", name)));
  }
  std::vector<TensorText> dense = whole;
  dense.emplace_back("b.weight_scale", kF32, std::vector<std::uint64_t>{});
  dense.emplace_back("b.weight", kBF16, std::vector<std::uint64_t>{2, 2});
  EXPECT_TRUE(Checkpoint(dense).refused(
      Errc::kCorrupt, "tensor 'b.weight': dtype is BF16 and shape [2, 2], but 'b.weight_scale' expects a matrix of F8_E4M3"));
}

TEST(Fp8, WrongDtypesAndEmptyWeightsAreCorrupt) {
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kF8E4M3, {2, 2}}, {"a.weight_scale", kI32, {}}}, kFp8)
          .refused(Errc::kCorrupt, "tensor 'a.weight_scale': dtype is I32, expected F32 or BF16 or F16 or F8_E8M0 or U8"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kF8E4M3, {0, 2}}, {"a.weight_scale", kF32, {}}})
                  .refused(Errc::kCorrupt, "tensor 'a.weight': has scales, but is empty"));
}

TEST(Fp8, WrongSettingsAreCorrupt) {
  for (const std::string_view sizes : {"[128]", "[0, 128]", "[128, -1]"}) {
    const std::string config =
        fmt::format(R"({{"quantization_config": {{"quant_method": "fp8", "weight_block_size": {}}}}})", sizes);
    const Checkpoint model({{"a.weight", kF8E4M3, {2, 2}}, {"a.weight_scale", kF32, {}}}, config);
    const auto& weights = model.weights();
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, Errc::kCorrupt);
    EXPECT_THAT(weights.error().message, testing::EndsWith("expected two positive numbers"));
  }
}

TEST(Fp8, CastsAreNotQuantized) {
  const Checkpoint model({{"a.weight", kF8E4M3, {4, 32}}, {"conv.weight", kF8E4M3, {4, 32}}, {"conv.scale", kF8E4M3, {4}}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->scheme(), "plain");
}

TEST(Fp8, ScalesThatNoQuantizerWritesAreFound) {
  const Checkpoint model(
      {{"a.weight", kF8E4M3, {2, 2}}, {"a.weight_scale", kF32, {2, 1}, raw({0.0F, std::numeric_limits<float>::quiet_NaN()})}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_THAT(model.defects(), ElementsAre("tensor 'a.weight_scale': 1 of 2 scales are NaN or infinite, the first at index 1",
                                           "tensor 'a.weight_scale': 1 of 2 scales are zero, the first at index 0"));
}

}  // namespace
}  // namespace ballast
