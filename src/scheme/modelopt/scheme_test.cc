#include <gmock/gmock.h>

#include "scheme/layer_reader.h"
#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::TensorText;
using ::testing::Each;
using ::testing::ElementsAre;
using enum DType;

using Tensors = std::vector<TensorText>;

std::string bytes(std::initializer_list<std::uint8_t> values) { return test::raw(values); }
std::string floats(std::initializer_list<float> values) { return test::raw(values); }

std::string config(std::string_view algorithm, std::string_view more = {}) {
  return fmt::format(R"({{"quantization_config": {{"quant_method": "modelopt", {} "quant_algo": "{}"}}}})", more, algorithm);
}

constexpr std::string_view kPlace = "config.json: quantization_config";

TensorText f8_codes() { return {"a.weight", kF8E4M3, {2, 4}, bytes({0x38, 0x01, 0x74, 0x7E, 0xB8, 0, 0x38, 0x38})}; }

// 6 in the first column and −6 in the fourth.
Tensors nvfp4() {
  return {{"a.weight", kU8, {1, 8}, bytes({0x07, 0xF0, 0, 0, 0, 0, 0, 0})},
          {"a.weight_scale", kF8E4M3, {1, 1}, bytes({0x74})},
          {"a.weight_scale_2", kF32, {}, floats({0.001F})},
          {"a.input_scale", kF32, {}, floats({1})}};
}

TEST(ModelOpt, Fp8) {
  EXPECT_THAT(Checkpoint({f8_codes(), {"a.weight_scale", kF32, {}, floats({2})}}, config("FP8")).values("a.weight"),
              ElementsAre(2, 0x1p-8F, 384, 896, -2, 0, 2, 2));
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{2}, {2, 1}}) {
    EXPECT_THAT(Checkpoint({f8_codes(), {"a.weight_scale", kF32, shape, floats({1, 2})}}, config("FP8_PER_CHANNEL_PER_TOKEN"))
                    .values("a.weight"),
                ElementsAre(1, 0x1p-9F, 192, 448, -2, 0, 2, 2));
  }
}

TEST(ModelOpt, Fp8InBlocks) {
  std::string ones(129 * 130, '\x38');
  const Checkpoint model({{"a.weight", kF8E4M3, {129, 130}, ones}, {"a.weight_scale", kF32, {2, 1, 2, 1}, floats({1, 2, 3, 4})}},
                         config("FP8_PB_WO"));
  const auto values = model.values("a.weight");
  ASSERT_EQ(values.size(), ones.size());
  EXPECT_EQ(values[127 * 130 + 127], 1);
  EXPECT_EQ(values[127 * 130 + 128], 2);
  EXPECT_EQ(values[128 * 130 + 127], 3);
  EXPECT_EQ(values[128 * 130 + 128], 4);
  EXPECT_EQ(model.weights()->find("a.weight")->storage.mode, "FP8_PB_WO");
}

TEST(ModelOpt, Mxfp8) {
  const Checkpoint model({{"a.weight", kF8E4M3, {1, 32}, std::string(32, '\x38')}, {"a.weight_scale", kU8, {1, 1}, bytes({126})}},
                         config("MXFP8"));
  EXPECT_THAT(model.values("a.weight"), Each(0.5F));
}

// 192 · 0.001 is rounded before it is multiplied by the code.
TEST(ModelOpt, Nvfp4MultipliesByTheSecondScale) {
  for (const std::string_view algorithm : {"NVFP4", "W4A16_NVFP4"}) {
    const Checkpoint model(nvfp4(), config(algorithm));
    const auto values = model.values("a.weight");
    ASSERT_EQ(values.size(), 16);
    EXPECT_EQ(values[0], 6.0F * (192.0F * 0.001F));
    EXPECT_EQ(values[3], -6.0F * (192.0F * 0.001F));
    const Weight& weight = *model.weights()->find("a.weight");
    EXPECT_EQ(weight.storage.mode, algorithm);
    EXPECT_EQ(weight.storage.group_size, 16);
    EXPECT_EQ(weight.dtype, kBF16);
    EXPECT_THAT(weight.tensors, ElementsAre("a.weight", "a.weight_scale", "a.weight_scale_2", "a.input_scale"));
  }
}

TEST(ModelOpt, ColumnsArePrescaled) {
  Tensors tensors = nvfp4();
  tensors.emplace_back("a.pre_quant_scale", kF32, std::vector<std::uint64_t>{16}, test::raw(std::vector<float>(16, 2)));
  EXPECT_EQ(Checkpoint(tensors, config("NVFP4_AWQ")).values("a.weight")[0], 12.0F * (192.0F * 0.001F));
  tensors.back() = {"a.pre_quant_scale", kF32, {8}};
  EXPECT_TRUE(Checkpoint(tensors, config("NVFP4_AWQ"))
                  .refused(Errc::kCorrupt, "tensor 'a.pre_quant_scale': shape is [8], expected [16]: one for each column"));
}

// Rows 2r in the low bits: 1 −8 | 7 −1, then 2 3 | 0 0.
TEST(ModelOpt, AwqPacksPairsOfRows) {
  const Checkpoint model({{"a.weight", kU8, {2, 2}, bytes({0x71, 0xF8, 0x02, 0x03})},
                          {"a.weight_scale",
                           kF16,
                           {4, 2},
                           test::raw<std::uint16_t>({0x3C00, 0x4000, 0x3C00, 0x3C00, 0x3C00, 0x3C00, 0x3C00, 0x3C00})},
                          {"a.pre_quant_scale", kF32, {2}, floats({1, 0.5F})}},
                         config("W4A16_AWQ", R"("group_size": 1,)"));
  EXPECT_THAT(model.values("a.weight"), ElementsAre(1, -8, 7, -0.5F, 2, 1.5F, 0, 0));
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_THAT(weight.shape, ElementsAre(4, 2));
  EXPECT_EQ(weight.dtype, kF16);
  std::array<float, 4> rows{};
  ASSERT_TRUE(model.weights()->read_rows("a.weight", 1, 2, kF32, std::as_writable_bytes(std::span(rows))));
  EXPECT_THAT(rows, ElementsAre(7, -0.5F, 2, 1.5F));
}

// [experts, in, out], with pairs of codes and groups along `in`.
TEST(ModelOpt, TransposedExperts) {
  std::string codes(2 * 8 * 3, '\0');
  codes[0] = '\x72';          // expert 0: 1 in row 0, 6 in row 1
  codes[8 * 3 + 1] = '\x10';  // expert 1: 0.5 in row 1 of column 1
  const Tensors tensors{{"experts.gate_up_proj", kU8, {2, 8, 3}, codes},
                        {"experts.gate_up_proj_weight_scale", kF8E4M3, {2, 1, 3}, bytes({0x38, 0x38, 0x38, 0x38, 0x40, 0x38})},
                        {"experts.gate_up_proj_weight_scale_2", kF32, {2}, floats({2, 4})},
                        {"experts.gate_up_proj_input_scale", kF32, {}}};
  const Checkpoint model(tensors, config("NVFP4"));
  const auto values = model.values("experts.gate_up_proj");
  ASSERT_EQ(values.size(), 96);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[3], 12);
  EXPECT_EQ(values[48 + 4], 4);
  EXPECT_THAT(model.weights()->find("experts.gate_up_proj")->shape, ElementsAre(2, 16, 3));
  EXPECT_EQ(model.weights()->find("experts.gate_up_proj_input_scale"), nullptr);
}

TEST(ModelOpt, ExpertsWithOneScaleEach) {
  const Checkpoint model({{"experts.down_proj", kF8E4M3, {2, 1, 2}, std::string(4, '\x38')},
                          {"experts.down_proj_weight_scale", kF32, {2, 1}, floats({2, 3})}},
                         config("FP8"));
  EXPECT_THAT(model.values("experts.down_proj"), ElementsAre(2, 2, 3, 3));
}

TEST(ModelOpt, SideFileOfOlderVersions) {
  const test::TempDir dir;
  dir.write("model.safetensors", test::safetensors(nvfp4()));
  dir.write("hf_quant_config.json",
            R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
      "kv_cache_quant_algo": null, "exclude_modules": ["lm_head"]}})");
  const auto weights = Weights::open(dir.path());
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->scheme(), "modelopt");
  EXPECT_TRUE(weights->find("a.weight")->is_quantized());
}

TEST(ModelOpt, MixedPrecision) {
  Tensors tensors = nvfp4();
  tensors.emplace_back("b.weight", kF8E4M3, std::vector<std::uint64_t>{1, 2}, bytes({0x38, 0xB8}));
  tensors.emplace_back("b.weight_scale", kF32, std::vector<std::uint64_t>{}, floats({3}));
  const auto section = [](std::string_view layers) {
    return config("MIXED_PRECISION", fmt::format(R"("quantized_layers": {{{}}},)", layers));
  };
  for (const std::string_view layers : {R"("a": {"quant_algo": "NVFP4", "group_size": 16}, "b": {"quant_algo": "FP8"})", ""}) {
    const Checkpoint model(tensors, section(layers));
    EXPECT_THAT(model.values("b.weight"), ElementsAre(3, -3));
    EXPECT_EQ(model.weights()->find("a.weight")->storage.bits, 4);
  }
  EXPECT_TRUE(Checkpoint(tensors, section(R"("a": {"quant_algo": "FP8"})"))
                  .refused(Errc::kCorrupt,
                           fmt::format("tensor 'a.weight': dtype is U8, expected F8_E4M3: {}: quant_algo is FP8", kPlace)));
}

TEST(ModelOpt, ConfigThatContradictsTheTensorsIsCorrupt) {
  const auto refused = [](const Tensors& tensors, const std::string& section, std::string_view message) {
    return Checkpoint(tensors, section).refused(Errc::kCorrupt, message);
  };
  EXPECT_TRUE(
      refused(nvfp4(), config("NVFP4", R"("group_size": 8,)"),
              fmt::format("tensor 'a.weight_scale': shape is [1, 1], expected [1, 2]: {}: quant_algo NVFP4 of a weight [1, 16]",
                          kPlace)));
  EXPECT_TRUE(
      refused({f8_codes(), {"a.weight_scale", kF32, {3}}}, config("FP8"),
              fmt::format("tensor 'a.weight_scale': shape is [3], expected []: {}: quant_algo FP8 of a weight [2, 4]", kPlace)));
  for (const std::string_view pattern : {"a", "*", "a*"}) {
    for (const std::string_view key : {"ignore", "exclude_modules"}) {
      EXPECT_TRUE(refused(nvfp4(), config("NVFP4", fmt::format(R"("{}": ["{}"],)", key, pattern)),
                          fmt::format("tensor 'a.weight': is quantized as U8, but {} excludes '{}'", kPlace, pattern)));
    }
  }
  Tensors tensors = nvfp4();
  tensors.erase(tensors.begin() + 2);
  EXPECT_TRUE(refused(tensors, config("NVFP4"), "tensor 'a.weight': 'a.weight_scale_2' is missing"));
  EXPECT_TRUE(refused({f8_codes()}, config("FP8"), "tensor 'a.weight': is F8_E4M3 without scales: 'a.weight_scale' is missing"));
  EXPECT_TRUE(refused({{"a.weight", kBF16, {2, 4}}, {"a.weight_scale", kF32, {}}}, config("FP8"),
                      fmt::format("tensor 'a.weight': dtype is BF16, expected F8_E4M3: {}: quant_algo is FP8", kPlace)));
  const Checkpoint none({{"a.weight", kBF16, {2, 4}}}, config("FP8"));
  EXPECT_TRUE(fails(none.weights(), Errc::kCorrupt,
                    fmt::format("{}: {} has a quant_algo, but no weight is quantized; remove the section if that is right",
                                none.path(), kPlace)));
}

TEST(ModelOpt, WhatIsNotReadIsUnsupported) {
  EXPECT_TRUE(
      fails(Checkpoint(nvfp4(), config("NVFP4_SVD")).weights(), Errc::kUnsupported,
            fmt::format("{}: quant_algo 'NVFP4_SVD' is not supported; Ballast reads FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, "
                        "MXFP8, NVFP4, W4A16_NVFP4, NVFP4_AWQ, W4A16_AWQ and MIXED_PRECISION",
                        kPlace)));
  Tensors tensors = nvfp4();
  tensors.emplace_back("a.svdquant_lora_a", kBF16, std::vector<std::uint64_t>{4, 16});
  EXPECT_TRUE(
      Checkpoint(tensors, config("NVFP4")).refused(Errc::kUnsupported, "tensor 'a.svdquant_lora_a': NVFP4_SVD is not supported"));
  EXPECT_TRUE(
      Checkpoint(nvfp4()).refused(Errc::kUnsupported,
                                  "tensor 'a.weight': is quantized by ModelOpt, but there is no quantization_config that tells "
                                  "how; open the directory with its config.json or hf_quant_config.json"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {1, 4}}, {"a.weight_scale", kF8E4M3, {1, 1}}, {"a.weight_scale_2", kF32, {}}},
                         config("NVFP4"))
                  .refused(Errc::kUnsupported, "tensor 'a.weight': 8 columns are not a multiple of 16, the group size"));
}

TEST(ModelOpt, ScalesOfTheCacheAreDropped) {
  Tensors tensors = nvfp4();
  tensors.emplace_back("k_proj.k_scale", kF32, std::vector<std::uint64_t>{});
  tensors.emplace_back("b.input_scale", kF32, std::vector<std::uint64_t>{});
  const Checkpoint model(tensors, config("NVFP4"));
  ASSERT_TRUE(model.weights()) << model.weights().error().message;
  EXPECT_THAT(model.weights()->dropped(), ElementsAre("k_proj.k_scale", "b.input_scale"));
}

TEST(ModelOpt, ValuesThatNoQuantizerWritesAreDescribed) {
  Tensors tensors = nvfp4();
  tensors[1].data = bytes({0x7F});
  tensors[2].data = floats({0});
  EXPECT_THAT(Checkpoint(tensors, config("NVFP4")).defects(),
              ElementsAre("tensor 'a.weight_scale': 1 of 1 scales are NaN or infinite, the first at index 0",
                          "tensor 'a.weight_scale_2': 1 of 1 scales are zero, the first at index 0"));
}

}  // namespace
}  // namespace ballast
