#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::TensorText;
using ::testing::ElementsAre;
using enum DType;

constexpr std::string_view kConfig = R"({"torch_dtype": "float16", "quantization_config": {"quant_method": "mxfp4"}})";
const std::string kGolden = "\xA1\xF7\x83\xE5";  // .5 -1 6 -6 1.5 -0 3 -4

// One group of 32: the golden codes, then zeros.
std::string golden_group() { return kGolden + std::string(12, '\0'); }

std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFFU);
  return bytes;
}

TEST(Mxfp4, TransformersNamesGiveTheTransposeOfTheStoredMatrix) {
  const Checkpoint model({{"mlp.experts.down_proj_blocks", kU8, {1, 2, 1, 16}, golden_group() + std::string(16, '\x22')},
                          {"mlp.experts.down_proj_scales", kU8, {1, 2, 1}, "\x80\x7E"},  // 2 and 1/2
                          {"mlp.experts.down_proj_bias", kBF16, {1, 2}, "abcd"}},
                         kConfig);
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->scheme(), "mxfp4");
  ASSERT_EQ(weights->weights().size(), 2U);
  const Weight& weight = weights->weights().front();
  EXPECT_EQ(weight.name, "mlp.experts.down_proj");
  EXPECT_THAT(weight.shape, ElementsAre(1, 32, 2));
  EXPECT_EQ(weight.rows, 32U);
  EXPECT_EQ(weight.dtype, kF16);
  EXPECT_EQ(weight.storage.bits, 4U);
  EXPECT_EQ(weight.storage.group_size, 32U);
  EXPECT_THAT(weight.tensors, ElementsAre("mlp.experts.down_proj_blocks", "mlp.experts.down_proj_scales"));
  EXPECT_EQ(weight.bytes, 34U);
  EXPECT_FALSE(weights->find("mlp.experts.down_proj_bias")->is_quantized());

  std::vector<float> expected;
  for (const float value : {0.5F, -1.0F, 6.0F, -6.0F, 1.5F, -0.0F, 3.0F, -4.0F})
    expected.insert(expected.end(), {2 * value, 0.5F});
  for (int i = 8; i < 32; ++i) expected.insert(expected.end(), {0.0F, 0.5F});
  EXPECT_EQ(model.values(weight.name), expected);
  EXPECT_TRUE(std::signbit(model.values(weight.name)[10]));
  EXPECT_EQ(model.values_by_row(weight.name), expected);
}

TEST(Mxfp4, OpenAiNamesGiveTheStoredMatrix) {
  const Checkpoint model({{"block.0.mlp.mlp1_weight.blocks", kU8, {1, 1, 1, 16}, golden_group()},
                          {"block.0.mlp.mlp1_weight.scales", kU8, {1, 1, 1}, "\x7F"}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  const Weight& weight = weights->weights().front();
  EXPECT_EQ(weight.name, "block.0.mlp.mlp1_weight");
  EXPECT_THAT(weight.shape, ElementsAre(1, 1, 32));
  std::vector<float> expected{0.5F, -1, 6, -6, 1.5F, -0.0F, 3, -4};
  expected.resize(32);
  EXPECT_EQ(model.values(weight.name), expected);
}

// The two namings describe the same bytes.
TEST(Mxfp4, BothNamingsAgreeForAllExpertsAndAnyRows) {
  constexpr std::uint64_t kExperts = 3;
  constexpr std::uint64_t kRows = 37;
  constexpr std::uint64_t kColumns = 96;
  constexpr unsigned kSeed = 7;
  const std::string blocks = random_bytes(kExperts * kRows * kColumns / 2, kSeed);
  std::string scales = random_bytes(kExperts * kRows * kColumns / 32, kSeed + 1);
  for (char& scale : scales) scale = static_cast<char>(scale == '\xFF' ? '\0' : scale);  // 0 is the smallest exponent
  const Checkpoint model({{"a_blocks", kU8, {kExperts, kRows, 3, 16}, blocks},
                          {"a_scales", kU8, {kExperts, kRows, 3}, scales},
                          {"b.blocks", kU8, {kExperts, kRows, 3, 16}, blocks},
                          {"b.scales", kU8, {kExperts, kRows, 3}, scales}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> transposed = model.values("a");
  const std::vector<float> plain = model.values("b");
  for (std::uint64_t e = 0; e < kExperts; ++e) {
    for (std::uint64_t r = 0; r < kRows; ++r) {
      for (std::uint64_t c = 0; c < kColumns; ++c) {
        ASSERT_EQ(transposed[(e * kColumns + c) * kRows + r], plain[(e * kRows + r) * kColumns + c]) << e << ' ' << r << ' ' << c;
      }
    }
  }
  for (const auto& [first, count] : {std::pair{0, 3}, {31, 2}, {63, 70}, {95, 2}, {287, 1}}) {
    std::vector<float> part(static_cast<std::size_t>(count) * kRows);
    const auto read = weights->read_rows("a", static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count), kF32,
                                         std::as_writable_bytes(std::span(part)));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(std::ranges::equal(part, std::span(transposed).subspan(static_cast<std::size_t>(first) * kRows, part.size())));
  }
}

TEST(Mxfp4, LargestExponentIsNanAndADefect) {
  const Checkpoint model(
      {{"a_blocks", kU8, {1, 2, 1, 16}, std::string(32, '\x11')}, {"a_scales", kU8, {1, 2, 1}, std::string("\xFF\0", 2)}});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> values = model.values("a");
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], 0x1p-128F);
  EXPECT_THAT(model.defects(), ElementsAre("tensor 'a_scales': 1 of 2 scales are NaN or infinite, the first at index 0"));
}

TEST(Mxfp4, MissingPartnerIsCorrupt) {
  const TensorText blocks("a_blocks", kU8, {1, 2, 1, 16});
  const TensorText scales("a_scales", kU8, {1, 2, 1});
  const std::vector<TensorText> whole{blocks, scales};
  std::vector<TensorText> lone = whole;
  lone.emplace_back("b_blocks", kU8, std::vector<std::uint64_t>{1, 2, 1, 16});
  EXPECT_TRUE(Checkpoint(lone).refused(Errc::kCorrupt, "tensor 'b_blocks': 'b_scales' is missing"));
  lone = whole;
  lone.emplace_back("b.scales", kU8, std::vector<std::uint64_t>{1, 2, 1});
  EXPECT_TRUE(Checkpoint(lone).refused(Errc::kCorrupt, "tensor 'b.scales': 'b.blocks' is missing"));
}

TEST(Mxfp4, ShapesThatDisagreeAreCorrupt) {
  const TensorText scales("a_scales", kU8, {1, 2, 1});
  EXPECT_TRUE(Checkpoint({{"a_blocks", kU8, {1, 2, 1, 8}}, scales})
                  .refused(Errc::kCorrupt, "tensor 'a_blocks': shape is [1, 2, 1, 8], expected [experts, rows, groups, 16]"));
  EXPECT_TRUE(Checkpoint({{"a_blocks", kU8, {2, 1, 16}}, scales})
                  .refused(Errc::kCorrupt, "tensor 'a_blocks': shape is [2, 1, 16], expected [experts, rows, groups, 16]"));
  EXPECT_TRUE(
      Checkpoint({{"a_blocks", kU8, {1, 3, 1, 16}}, scales})
          .refused(Errc::kCorrupt, "tensor 'a_scales': shape is [1, 2, 1], expected [1, 3, 1]: 'a_blocks' is [1, 3, 1, 16]"));
  EXPECT_TRUE(Checkpoint({{"a_blocks", kU8, {0, 2, 1, 16}}, {"a_scales", kU8, {0, 2, 1}}})
                  .refused(Errc::kCorrupt, "tensor 'a_blocks': is empty: shape is [0, 2, 1, 16]"));
  EXPECT_TRUE(Checkpoint({{"a_blocks", kU8, {1, 2, 1, 16}}, {"a_scales", kF32, {1, 2, 1}}})
                  .refused(Errc::kCorrupt, "tensor 'a_scales': dtype is F32, expected U8 or F8_E8M0"));
}

TEST(Mxfp4, WeightStoredTwiceIsCorrupt) {
  EXPECT_TRUE(Checkpoint({{"a_blocks", kU8, {1, 2, 1, 16}}, {"a_scales", kU8, {1, 2, 1}}, {"a", kBF16, {1, 32, 2}}})
                  .refused(Errc::kCorrupt, "tensor 'a': the weight is stored twice, also as 'a_blocks'"));
}

TEST(Mxfp4, DeclaredButDenseIsCorrupt) {
  EXPECT_TRUE(Checkpoint({{"mlp.experts.gate_up_proj", kBF16, {2, 32, 4}}}, kConfig)
                  .refused(Errc::kCorrupt,
                           "tensor 'mlp.experts.gate_up_proj': dtype is BF16, but config.json: quantization_config says 'mxfp4': "
                           "expected 'mlp.experts.gate_up_proj_blocks'; remove the section if the weights are not quantized"));
  const Checkpoint model({{"lm_head.weight", kBF16, {2, 2}}}, kConfig);
  EXPECT_TRUE(fails(model.weights(), Errc::kCorrupt,
                    model.path() + ": config.json: quantization_config says 'mxfp4', but no tensor is named *_blocks; remove the "
                                   "section if the weights are not quantized"));
}

TEST(Mxfp4, ExpertsThatTheConfigLeavesOutMayBeDense) {
  const Checkpoint model({{"layers.0.mlp.experts.down_proj", kBF16, {2, 32, 4}},
                          {"layers.1.mlp.experts.down_proj_blocks", kU8, {1, 2, 1, 16}},
                          {"layers.1.mlp.experts.down_proj_scales", kU8, {1, 2, 1}}},
                         R"({"quantization_config": {"quant_method": "mxfp4",
                                       "modules_to_not_convert": ["layers.0.mlp.experts"]}})");
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->weights().size(), 2U);
}

}  // namespace
}  // namespace ballast
