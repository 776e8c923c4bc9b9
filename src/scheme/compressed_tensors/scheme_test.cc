#include <gmock/gmock.h>

#include "scheme/layer_reader.h"
#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::TensorText;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using enum DType;

using Tensors = std::vector<TensorText>;

std::string words(std::initializer_list<std::uint32_t> values) { return test::raw(values); }
std::string bytes(std::initializer_list<std::uint8_t> values) { return test::raw(values); }
std::string floats(std::initializer_list<float> values) { return test::raw(values); }
std::string sizes(std::initializer_list<std::int64_t> values) { return test::raw(values); }

std::string config(std::string_view format, std::string_view weights, std::string_view more = {}) {
  return fmt::format(R"({{"dtype": "bfloat16", "quantization_config": {{"quant_method": "compressed-tensors", "format": "{}",
      "quantization_status": "compressed", {} "config_groups": {{"group_0": {{"targets": ["Linear"], "weights": {{{}}}}}}}}}}})",
                     format, more, weights);
}

std::string packed(unsigned bits, std::string_view rest, std::string_view more = {}) {
  return config("pack-quantized", fmt::format(R"("num_bits": {}, "type": "int", {})", bits, rest), more);
}

// A row of 8 columns with the codes −8 −1 0 1 2 3 7 −3, and what must accompany it.
Tensors golden() {
  return {{"a.weight_packed", kI32, {1, 1}, words({0x5FBA9870})},
          {"a.weight_scale", kF32, {1, 1}, floats({0.5F})},
          {"a.weight_shape", kI64, {2}, sizes({1, 8})}};
}

constexpr std::string_view kChannel = R"("strategy": "channel")";
constexpr std::string_view kGroupPlace = "config.json: quantization_config: config_groups: group_0";

TEST(CompressedTensors, FourBits) {
  const Checkpoint model(golden(), packed(4, kChannel));
  EXPECT_THAT(model.values("a.weight"), ElementsAre(-4, -0.5F, 0, 0.5F, 1, 1.5F, 3.5F, -1.5F));
  EXPECT_EQ(model.weights()->scheme(), "compressed-tensors");
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_EQ(weight.dtype, kBF16);
  EXPECT_THAT(weight.shape, ElementsAre(1, 8));
  EXPECT_EQ(weight.storage.mode, "pack-quantized");
  EXPECT_EQ(weight.storage.bits, 4);
  EXPECT_EQ(weight.storage.group_size, 8);
  EXPECT_THAT(weight.tensors, ElementsAre("a.weight_packed", "a.weight_scale", "a.weight_shape"));
}

TEST(CompressedTensors, SectionsOfOlderConfigs) {
  const std::string section = R"({"format": "pack-quantized", "quantization_status": "compressed", "config_groups":
      {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "channel"}}}})";
  for (const std::string& text :
       {fmt::format(R"({{"compression_config": {}}})", section),
        fmt::format(R"({{"compression_config": {{"quantization_config": {}, "sparsity_config": {{"format": "dense"}}}}}})",
                    section),
        fmt::format(R"({{"text_config": {{"compression_config": {}}}}})", section)}) {
    EXPECT_EQ(Checkpoint(golden(), text).values("a.weight").front(), -4) << text;
  }
}

// −4 −3 −2 −1 0 1 2 3 −4 −3 3
TEST(CompressedTensors, ThreeBitsWithAndWithoutPadding) {
  const auto expected = ElementsAre(-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, 3);
  const auto model = [](std::initializer_list<std::uint32_t> codes, std::string_view version) {
    return Checkpoint({{"a.weight_packed", kI32, {1, 2}, words(codes)},
                       {"a.weight_scale", kF32, {1, 1}, floats({1})},
                       {"a.weight_shape", kI64, {2}, sizes({1, 11})}},
                      packed(3, kChannel, version));
  };
  EXPECT_THAT(model({0xC8FAC688, 1}, R"("version": "0.17.1",)").values("a.weight"), expected);
  EXPECT_THAT(model({0x08FAC688, 7}, R"("version": "0.9.3",)").values("a.weight"), expected);
  EXPECT_TRUE(model({0x08FAC688, 7}, "")
                  .refused(Errc::kUnsupported,
                           "tensor 'a.weight_packed': rows of 11 columns with 3 bits take 2 words with and "
                           "without padding, and config.json: quantization_config has no version"));
}

TEST(CompressedTensors, WidthTellsThePadding) {
  for (const unsigned width : {3U, 5U, 6U, 7U}) {
    const std::uint64_t padded = (32 + 32 / width - 1) / (32 / width);
    for (const std::uint64_t count : {std::uint64_t{width}, padded}) {
      const Checkpoint model({{"a.weight_packed", kI32, {1, count}},
                              {"a.weight_scale", kF32, {1, 1}, floats({1})},
                              {"a.weight_shape", kI64, {2}, sizes({1, 32})}},
                             packed(width, kChannel));
      EXPECT_THAT(model.values("a.weight"), testing::Each(-static_cast<float>(1U << (width - 1)))) << width;
    }
    const Checkpoint other({{"a.weight_packed", kI32, {1, padded + 1}},
                            {"a.weight_scale", kF32, {1, 1}},
                            {"a.weight_shape", kI64, {2}, sizes({1, 32})}},
                           packed(width, kChannel));
    EXPECT_TRUE(other.refused(Errc::kCorrupt, fmt::format("tensor 'a.weight_packed': shape is [1, {}], expected [1, {}]: {}: "
                                                          "num_bits {} of a weight [1, 32]",
                                                          padded + 1, width, kGroupPlace, width)));
  }
}

TEST(CompressedTensors, ZeroPointsArePackedDownTheRows) {
  // Codes 8 + 0 everywhere; the zero points of the rows are 0 1 2 in group 0 and −8 7 −1 in group 1.
  const Checkpoint model(
      {{"a.weight_packed", kI32, {3, 1}, words({0x88888888, 0x88888888, 0x88888888})},
       {"a.weight_scale", kF16, {3, 2}, test::raw<std::uint16_t>({0x3C00, 0x4000, 0x3C00, 0x3C00, 0x3C00, 0x3C00})},
       {"a.weight_zero_point", kI32, {1, 2}, words({0xA98, 0x7F0})},
       {"a.weight_shape", kI64, {2}, sizes({3, 8})}},
      packed(4, R"("strategy": "group", "group_size": 4, "symmetric": false)"));
  EXPECT_THAT(model.values("a.weight"),
              ElementsAre(0, 0, 0, 0, 16, 16, 16, 16, -1, -1, -1, -1, -7, -7, -7, -7, -2, -2, -2, -2, 1, 1, 1, 1));
}

// Row 10 is in bits 30 to 32.
TEST(CompressedTensors, ZeroPointsCrossWords) {
  const Checkpoint model({{"a.weight_packed", kI32, {16, 3}},
                          {"a.weight_scale", kF32, {16, 1}, test::raw(std::vector<float>(16, 1))},
                          {"a.weight_zero_point", kI32, {2, 1}, words({0x80000000, 0x1})},
                          {"a.weight_shape", kI64, {2}, sizes({16, 32})}},
                         packed(3, R"("strategy": "channel", "symmetric": false)"));
  const auto values = model.values("a.weight");
  ASSERT_EQ(values.size(), 512);
  EXPECT_EQ(values[9 * 32], 0);
  EXPECT_EQ(values[10 * 32], -6);
  std::array<float, 32> row{};
  ASSERT_TRUE(model.weights()->read_rows("a.weight", 10, 1, kF32, std::as_writable_bytes(std::span(row))));
  EXPECT_EQ(row[31], -6);
}

TEST(CompressedTensors, GroupIndex) {
  Tensors tensors{{"a.weight_packed", kI32, {1, 1}, words({0x99999999})},
                  {"a.weight_scale", kF32, {1, 2}, floats({1, 2})},
                  {"a.weight_g_idx", kI32, {8}, test::raw<std::int32_t>({1, 0, 1, 0, 0, 0, 1, 1})},
                  {"a.weight_shape", kI64, {2}, sizes({1, 8})}};
  const std::string section = packed(4, R"("strategy": "group", "group_size": 4, "actorder": "group")");
  EXPECT_THAT(Checkpoint(tensors, section).values("a.weight"), ElementsAre(2, 1, 2, 1, 1, 1, 2, 2));
  tensors[2].data = test::raw<std::int32_t>({-1, -1, -1, -1, -1, -1, -1, -1});
  EXPECT_THAT(Checkpoint(tensors, section).values("a.weight"), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  tensors[2].data = test::raw<std::int32_t>({0, 0, 0, 0, 0, 0, 0, 2});
  const Checkpoint outside(tensors, section);
  const std::string message = outside.message("tensor 'a.weight_g_idx': column 7 is in group 2, but there are 2 groups");
  EXPECT_TRUE(fails(outside.weights()->read("a.weight", kF32), Errc::kCorrupt, message));
  EXPECT_THAT(outside.defects(), ElementsAre(message));
  tensors[2] = {"a.weight_g_idx", kI32, {4}};
  EXPECT_TRUE(Checkpoint(tensors, section)
                  .refused(Errc::kCorrupt, "tensor 'a.weight_g_idx': shape is [4], expected [8]: one for each column"));
}

TEST(CompressedTensors, StackedMatrices) {
  const Checkpoint model({{"a.weight_packed", kI32, {2, 3, 1}, words({0x88888888, 0, 0, 0x99999999, 0, 0})},
                          {"a.weight_scale", kF32, {2, 3, 1}, floats({1, 1, 1, 2, 1, 1})},
                          {"a.weight_zero_point", kI32, {2, 1, 1}, words({0x889, 0x880})},
                          {"a.weight_shape", kI64, {3}, sizes({2, 3, 8})}},
                         packed(4, R"("strategy": "channel", "symmetric": false)"));
  const auto values = model.values("a.weight");
  ASSERT_EQ(values.size(), 48);
  EXPECT_EQ(values[0], -1);
  EXPECT_EQ(values[8], -8);
  EXPECT_EQ(values[24], 18);
  EXPECT_THAT(model.weights()->find("a.weight")->shape, ElementsAre(2, 3, 8));
}

TEST(CompressedTensors, Int8) {
  const auto section = [](std::string_view weights) { return config("int-quantized", weights); };
  const TensorText codes("a.weight", kI8, {2, 4}, bytes({1, 2, 3, 4, 0xFF, 0xFE, 127, 128}));
  EXPECT_THAT(
      Checkpoint({codes, {"a.weight_scale", kF32, {1}, floats({0.5F})}}, section(R"("strategy": "tensor")")).values("a.weight"),
      ElementsAre(0.5F, 1, 1.5F, 2, -0.5F, -1, 63.5F, -64));
  EXPECT_THAT(
      Checkpoint({codes, {"a.weight_scale", kF32, {2, 1}, floats({1, 2})}}, section(R"("group_size": -1)")).values("a.weight"),
      ElementsAre(1, 2, 3, 4, -2, -4, 254, -256));
  EXPECT_THAT(Checkpoint({codes,
                          {"a.weight_scale", kF32, {2, 2}, floats({1, 2, 3, 4})},
                          {"a.weight_zero_point", kI8, {2, 2}, bytes({1, 0xFF, 0, 100})}},
                         section(R"("group_size": 2, "symmetric": false)"))
                  .values("a.weight"),
              ElementsAre(0, 1, 8, 10, -3, -6, 108, -912));
  EXPECT_THAT(Checkpoint({codes, {"a.weight_scale", kF32, {1, 2}, floats({1, 2})}},
                         section(R"("strategy": "block", "block_structure": "128x3")"))
                  .values("a.weight"),
              ElementsAre(1, 2, 3, 8, -1, -2, 127, -256));
}

TEST(CompressedTensors, Float8) {
  const TensorText codes("a.weight", kF8E4M3, {2, 4}, bytes({0x38, 0x01, 0x74, 0x7E, 0xB8, 0, 0x38, 0x38}));
  for (const std::string_view format : {"float-quantized", "naive-quantized"}) {
    const auto section = [&](std::string_view rest) { return config(format, fmt::format(R"("type": "float", {})", rest)); };
    EXPECT_THAT(Checkpoint({codes, {"a.weight_scale", kF32, {}, floats({2})}, {"a.input_scale", kF32, {1}}},
                           section(R"("strategy": "tensor")"))
                    .values("a.weight"),
                ElementsAre(2, 0x1p-8F, 384, 896, -2, 0, 2, 2));
    EXPECT_THAT(
        Checkpoint({codes, {"a.weight_scale", kBF16, {2, 1}, test::raw<std::uint16_t>({0x3F80, 0x4000})}}, section(kChannel))
            .values("a.weight"),
        ElementsAre(1, 0x1p-9F, 192, 448, -2, 0, 2, 2));
    EXPECT_THAT(Checkpoint({codes, {"a.weight_scale", kF32, {2, 2}, floats({1, 2, 3, 4})}},
                           section(R"("strategy": "block", "block_structure": [1, 3])"))
                    .values("a.weight"),
                ElementsAre(1, 0x1p-9F, 192, 896, -3, 0, 3, 4));
  }
}

// Scale 0x74 is 192; 6 · (192 / 1000) = 1.152.
TEST(CompressedTensors, Nvfp4DividesByTheGlobalScale) {
  std::string codes(8, '\0');
  codes[0] = '\x07';
  codes[1] = '\xF0';
  const Checkpoint model(
      {{"a.weight_packed", kU8, {1, 8}, codes},
       {"a.weight_scale", kF8E4M3, {1, 1}, bytes({0x74})},
       {"a.weight_global_scale", kF32, {1}, floats({1000})},
       {"a.input_global_scale", kF32, {1}, floats({1})}},
      config("nvfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)"));
  const auto values = model.values("a.weight");
  ASSERT_EQ(values.size(), 16);
  EXPECT_EQ(values[0], 1.152F);
  EXPECT_EQ(values[3], -1.152F);
  EXPECT_THAT(model.weights()->find("a.weight")->tensors,
              ElementsAre("a.weight_packed", "a.weight_scale", "a.weight_global_scale", "a.input_global_scale"));
}

TEST(CompressedTensors, Microscaling) {
  std::string codes = bytes({0xA1, 0xF7, 0x83, 0xE5});
  codes.resize(16);
  const auto four = Checkpoint({{"a.weight_packed", kU8, {1, 16}, codes}, {"a.weight_scale", kU8, {1, 1}, bytes({128})}},
                               config("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "group_size": 32)"))
                        .values("a.weight");
  ASSERT_EQ(four.size(), 32);
  EXPECT_THAT(std::vector(four.begin(), four.begin() + 8), ElementsAre(1, -2, 12, -12, 3, -0.0F, 6, -8));
  std::string elements = bytes({0x38});
  elements.resize(32);
  const auto eight = Checkpoint({{"a.weight", kF8E4M3, {1, 32}, elements}, {"a.weight_scale", kU8, {1, 1}, bytes({126})}},
                                config("mxfp8-quantized", R"("type": "float", "group_size": 32)"))
                         .values("a.weight");
  ASSERT_EQ(eight.size(), 32);
  EXPECT_EQ(eight[0], 0.5F);
}

TEST(CompressedTensors, MixedPrecisionByTargets) {
  const auto section = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"quantization_config": {{"quant_method": "compressed-tensors", "format": "mixed-precision",
        "quantization_status": "compressed", "config_groups": {{
        "group_0": {{"targets": [{}], "format": "pack-quantized", "weights": {{"num_bits": 4, "strategy": "channel"}}}},
        "group_1": {{"targets": [{}], "format": "float-quantized", "weights": {{"type": "float", "strategy": "channel"}}}}}}}}}})",
                       first, second);
  };
  Tensors tensors = golden();
  tensors.emplace_back("b.weight", kF8E4M3, std::vector<std::uint64_t>{1, 2}, bytes({0x38, 0xB8}));
  tensors.emplace_back("b.weight_scale", kF32, std::vector<std::uint64_t>{1, 1}, floats({3}));
  for (const auto& [first, second] : {std::pair(R"("Linear")", R"("re:.*b$")"),
                                      {R"("a")", R"("b")"},
                                      {R"("Linear")", R"("Embedding")"},
                                      {R"("re:(?!b).*")", R"("b")"},
                                      {R"("renamed.a")", R"("renamed.b")"}}) {
    const Checkpoint model(tensors, section(first, second));
    EXPECT_EQ(model.values("a.weight").front(), -4) << first;
    EXPECT_THAT(model.values("b.weight"), ElementsAre(3, -3)) << first;
  }
  EXPECT_TRUE(Checkpoint(tensors, section(R"("b")", R"("re:a")"))
                  .refused(Errc::kCorrupt,
                           "tensor 'a.weight_packed': is I32 of pack-quantized, but config.json: quantization_config: "
                           "config_groups: group_1: format is 'float-quantized'"));
}

TEST(CompressedTensors, ConfigThatContradictsTheTensorsIsCorrupt) {
  const auto refused = [](const Tensors& tensors, const std::string& section, std::string_view message) {
    return Checkpoint(tensors, section).refused(Errc::kCorrupt, message);
  };
  EXPECT_TRUE(refused(
      golden(), packed(8, kChannel),
      fmt::format("tensor 'a.weight_packed': shape is [1, 1], expected [1, 2]: {}: num_bits 8 of a weight [1, 8]", kGroupPlace)));
  EXPECT_TRUE(
      refused(golden(), packed(4, R"("group_size": 4)"),
              fmt::format("tensor 'a.weight_scale': shape is [1, 1], expected [1, 2]: {}: group_size 4 of a weight [1, 8]",
                          kGroupPlace)));
  EXPECT_TRUE(
      refused(golden(), packed(4, R"("strategy": "channel", "symmetric": false)"),
              fmt::format("tensor 'a.weight_packed': has no weight_zero_point, but {}: symmetric is false", kGroupPlace)));
  Tensors asymmetric = golden();
  asymmetric.emplace_back("a.weight_zero_point", kI32, std::vector<std::uint64_t>{1, 1});
  EXPECT_TRUE(refused(asymmetric, packed(4, kChannel),
                      fmt::format("tensor 'a.weight_zero_point': has zero points, but {}: symmetric is true", kGroupPlace)));
  asymmetric.back() = {"a.weight_zero_point", kI32, {2, 1}};
  EXPECT_TRUE(
      refused(asymmetric, packed(4, R"("strategy": "channel", "symmetric": false)"),
              fmt::format("tensor 'a.weight_zero_point': shape is [2, 1], expected [1, 1]: {}: num_bits 4 of a weight [1, 8]",
                          kGroupPlace)));
  EXPECT_TRUE(refused(golden(), config("pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "channel")"),
                      fmt::format("tensor 'a.weight_packed': is I32 of pack-quantized, but {}: type is 'float'", kGroupPlace)));
  EXPECT_TRUE(refused(golden(), packed(4, kChannel, R"("ignore": ["re:^a"],)"),
                      "tensor 'a.weight_packed': is quantized, but config.json: quantization_config: ignore contains 'a'"));
  EXPECT_TRUE(refused(golden(), packed(4, kChannel, R"("ignore": ["a"],)"),
                      "tensor 'a.weight_packed': is quantized, but config.json: quantization_config: ignore contains 'a'"));
}

TEST(CompressedTensors, TensorsThatDisagreeAreCorrupt) {
  const auto refused = [](const Tensors& tensors, std::string_view message) {
    return Checkpoint(tensors, packed(4, kChannel)).refused(Errc::kCorrupt, message);
  };
  Tensors tensors = golden();
  tensors[2].data = sizes({2, 8});
  EXPECT_TRUE(refused(tensors, "tensor 'a.weight_shape': dimension 0 is 2, but 'a.weight_packed' is [1, 1]"));
  for (const std::int64_t columns :
       {std::int64_t{0}, std::int64_t{-8}, std::int64_t{33}, std::numeric_limits<std::int64_t>::max()}) {
    tensors[2].data = sizes({1, columns});
    EXPECT_TRUE(
        refused(tensors, fmt::format("tensor 'a.weight_shape': dimension 1 is {}, but 'a.weight_packed' is [1, 1]", columns)));
  }
  tensors[2].data = sizes({1, 9});
  EXPECT_TRUE(refused(
      tensors,
      fmt::format("tensor 'a.weight_packed': shape is [1, 1], expected [1, 2]: {}: num_bits 4 of a weight [1, 9]", kGroupPlace)));
  tensors.pop_back();
  EXPECT_TRUE(refused(tensors, "tensor 'a.weight_packed': 'a.weight_shape' is missing"));
  tensors.pop_back();
  EXPECT_TRUE(refused(tensors, "tensor 'a.weight_packed': 'a.weight_scale' is missing"));
  EXPECT_TRUE(refused({{"a.weight_scale", kF32, {1, 1}}}, "tensor 'a.weight_scale': 'a.weight' is missing"));
  EXPECT_TRUE(
      refused({{"a.weight", kF8E4M3, {2, 2}}}, "tensor 'a.weight': is F8_E4M3 without scales: 'a.weight_scale' is missing"));
  EXPECT_TRUE(refused({{"a.weight", kBF16, {2, 2}}, {"a.weight_scale", kF32, {2, 1}}},
                      "tensor 'a.weight': dtype is BF16, expected I8 or F8_E4M3"));
  tensors = golden();
  tensors.emplace_back("a.weight", kBF16, std::vector<std::uint64_t>{1, 8});
  EXPECT_FALSE(Checkpoint(tensors, packed(4, kChannel)).weights());
}

TEST(CompressedTensors, WhatIsNotReadIsUnsupported) {
  Tensors tensors = golden();
  EXPECT_TRUE(Checkpoint(tensors, packed(4, R"("group_size": 3)"))
                  .refused(Errc::kUnsupported,
                           fmt::format("tensor 'a.weight_packed': 8 columns are not a multiple of 3, the group_size in {}; "
                                       "compressed-tensors does not read such weights",
                                       kGroupPlace)));
  EXPECT_TRUE(Checkpoint(tensors).refused(Errc::kUnsupported,
                                          "tensor 'a.weight_packed': is quantized by compressed-tensors, but there is no "
                                          "quantization_config that tells how; open the directory with its config.json"));
  EXPECT_TRUE(
      fails(Checkpoint(tensors, config("marlin-24", kChannel)).weights(), Errc::kUnsupported,
            "config.json: quantization_config: format 'marlin-24' is not supported; Ballast reads pack-quantized, "
            "int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp8-quantized"));
  EXPECT_TRUE(
      fails(Checkpoint(tensors, packed(4, kChannel, R"("sparsity_config": {"format": "sparse-24-bitmask"},)")).weights(),
            Errc::kUnsupported,
            "config.json: quantization_config: sparsity_config: format 'sparse-24-bitmask' of sparse weights is not supported; "
            "save the model without it"));
}

TEST(CompressedTensors, ConfigsThatAreWrong) {
  for (const auto& [weights, message] :
       {std::pair<std::string_view, std::string_view>{R"("num_bits": 9)", "num_bits is 9, expected 1 to 8"},
        {R"("type": "complex")", R"(type is 'complex', expected int or float)"},
        {R"("strategy": "token")", R"(strategy is 'token', expected tensor, channel, group, tensor_group or block)"},
        {R"("strategy": "group")", "group_size is missing, expected a positive number"},
        {R"("strategy": "block")", "block_structure is missing, expected two positive numbers"},
        {R"("strategy": "block", "block_structure": "128")", R"(block_structure is '128', expected two positive numbers)"},
        {R"("strategy": "block", "block_structure": [0, 1])", "block_structure is [0,1], expected two positive numbers"}}) {
    EXPECT_TRUE(fails(Checkpoint(golden(), config("pack-quantized", weights)).weights(), Errc::kCorrupt,
                      fmt::format("{}: weights: {}", kGroupPlace, message)));
  }
}

TEST(CompressedTensors, AttentionScalesAreDropped) {
  Tensors tensors = golden();
  tensors.emplace_back("attn.k_scale", kF32, std::vector<std::uint64_t>{1});
  tensors.emplace_back("norm.weight", kBF16, std::vector<std::uint64_t>{4});
  const Checkpoint model(tensors, packed(4, kChannel));
  ASSERT_TRUE(model.weights());
  EXPECT_THAT(model.weights()->dropped(), ElementsAre("attn.k_scale"));
  EXPECT_EQ(model.weights()->find("attn.k_scale"), nullptr);
  EXPECT_FALSE(model.weights()->find("norm.weight")->is_quantized());
}

TEST(CompressedTensors, DenseWeightsWithScalesStayPlainUntilCompressed) {
  const Tensors tensors{{"a.weight", kBF16, {2, 2}}, {"a.weight_scale", kBF16, {2, 1}}};
  const Checkpoint model(tensors, R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "dense",
      "quantization_status": "frozen", "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}}}})");
  ASSERT_TRUE(model.weights()) << model.weights().error().message;
  EXPECT_FALSE(model.weights()->is_quantized());
  EXPECT_THAT(model.weights()->dropped(), ElementsAre("a.weight_scale"));
  const Checkpoint none({{"a.weight", kBF16, {2, 2}}}, packed(4, kChannel));
  EXPECT_TRUE(fails(none.weights(), Errc::kCorrupt,
                    none.path() + ": config.json: quantization_config says that weights are compressed, but none is; remove the "
                                  "section if the weights are not quantized"));
}

TEST(CompressedTensors, ValuesThatNoQuantizerWritesAreDescribed) {
  EXPECT_THAT(Checkpoint(golden(), packed(4, kChannel)).defects(), IsEmpty());
  Tensors tensors = golden();
  tensors[1].data = floats({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(Checkpoint(tensors, packed(4, kChannel)).defects(),
              ElementsAre("tensor 'a.weight_scale': 1 of 1 scales are NaN or infinite, the first at index 0"));
  const Checkpoint zeros({{"a.weight", kI8, {2, 2}},
                          {"a.weight_scale", kF32, {2, 1}, floats({1, 0})},
                          {"a.weight_zero_point", kI8, {2, 1}, bytes({0xF8, 8})}},
                         config("int-quantized", R"("num_bits": 4, "strategy": "channel", "symmetric": false)"));
  EXPECT_THAT(zeros.defects(),
              ElementsAre("tensor 'a.weight_scale': 1 of 2 scales are zero, the first at index 1",
                          "tensor 'a.weight_zero_point': 1 of 2 zero points do not fit 4 bits, the first at index 1 is 8"));
}

}  // namespace
}  // namespace ballast
