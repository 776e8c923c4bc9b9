#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::raw;
using test::TensorText;
using ::testing::Each;
using ::testing::ElementsAre;
using enum DType;

const std::string kGolden = "\x1A\x7F\x38\x5E";  // .5 -1 6 -6 1.5 -0 3 -4, high nibble first

// The JSON of __metadata__, with these layers as the JSON inside.
std::string metadata(std::string_view layers) {
  std::string text = fmt::format(R"({{"format_version":"1.0","layers":{}}})", layers);
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return fmt::format(R"({{"_quantization_metadata":"{}"}})", text);
}

TensorText description(std::string_view module, std::string_view json) {
  return {std::string(module) + ".comfy_quant", kU8, {json.size()}, std::string(json)};
}

std::string swizzled(std::uint64_t size, std::initializer_list<std::pair<std::size_t, char>> scales) {
  std::string bytes(size, '\0');
  for (const auto& [at, scale] : scales) bytes[at] = scale;
  return bytes;
}

TEST(ComfyUi, ScaledFp8OfTheMetadata) {
  const std::string layers = metadata(R"({"a":{"format":"float8_e4m3fn"},"b":"float8_e5m2"})");
  const Checkpoint model({{"model.diffusion_model.a.weight", kF8E4M3, {2, 2}, "\x38\x74\xFE\x01"},
                          {"model.diffusion_model.a.weight_scale", kF32, {}, raw({0.5F})},
                          {"model.diffusion_model.a.input_scale", kF32, {}, raw({3.0F})},
                          {"b.weight", kF8E5M2, {1, 2}, "\x3C\xC0"},
                          {"b.weight_scale", kF32, {1}, raw({2.0F})},
                          {"cast.weight", kF8E4M3, {1, 2}, "\x38\x38"}},
                         "", layers);
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->scheme(), "comfyui");
  EXPECT_THAT(weights->dropped(), ElementsAre("model.diffusion_model.a.input_scale"));
  EXPECT_THAT(model.values("model.diffusion_model.a.weight"), ElementsAre(0.5F, 96, -224, 0x1p-10F));
  EXPECT_THAT(model.values("b.weight"), ElementsAre(2, -4));
  EXPECT_FALSE(weights->find("cast.weight")->is_quantized());
  EXPECT_THAT(model.values("cast.weight"), ElementsAre(1, 1));
  EXPECT_EQ(weights->find("b.weight")->storage.mode, "float8_e5m2");
}

TEST(ComfyUi, ScaledFp8OfATensorInEveryLayer) {
  const Checkpoint model({{"a.weight", kU8, {1, 2}, "\x38\x40"},  // raw bytes
                          {"a.weight_scale", kBF16, {}, std::string("\x80\x3F", 2)},
                          description("a", R"({"format": "float8_e4m3fn", "full_precision_matrix_mult": true, "params": {}})")});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_THAT(model.values("a.weight"), ElementsAre(1, 2));
  EXPECT_THAT(weights->find("a.weight")->tensors, ElementsAre("a.weight", "a.weight_scale", "a.comfy_quant"));
  EXPECT_EQ(weights->weights().size(), 1U);
}

TEST(ComfyUi, OldFormIsFoundByItsNames) {
  for (const auto& [marker, codes] : {std::pair{TensorText("x.scaled_fp8", kF8E4M3, {0}), kF8E4M3},
                                      {TensorText("x.scaled_fp8", kF32, {2}), kF8E4M3},
                                      {TensorText("scaled_fp8", kF8E5M2, {2}), kF8E5M2}}) {
    const Checkpoint model({{"x.a.weight", codes, {2}, "\x3C\xBC"},
                            {"x.a.scale_weight", kF32, {1}, raw({4.0F})},
                            {"x.a.scale_input", kF32, {1}, raw({3.0F})},
                            {"x.cast.weight", codes, {1, 1}, "\x3C"},
                            marker});
    const auto& weights = model.weights();
    ASSERT_TRUE(weights) << weights.error().message;
    const float one = codes == kF8E4M3 ? 1.5F : 1.0F;
    EXPECT_THAT(model.values("x.a.weight"), ElementsAre(4 * one, -4 * one));
    EXPECT_THAT(weights->dropped(), testing::UnorderedElementsAre("x.a.scale_input", marker.name));
    EXPECT_FALSE(weights->find("x.cast.weight")->is_quantized());
  }
  const Checkpoint model({{"a.weight", kF8E5M2, {1, 1}, "\x3C"}, {"a.scale_weight", kF32, {}, raw({4.0F})}});
  const auto& unmarked = model.weights();
  ASSERT_TRUE(unmarked) << unmarked.error().message;
  EXPECT_THAT(model.values("a.weight"), ElementsAre(4));
}

// The scale of row 33 and group 2 is at byte 22 of the tile.
TEST(ComfyUi, Nvfp4HasSwizzledScalesAndTheHighNibbleFirst) {
  std::string codes(48 * 32, '\0');
  codes.replace(33 * 32 + 16, 4, kGolden);
  const Checkpoint model({{"a.weight", kU8, {48, 32}, codes},
                          {"a.weight_scale", kF8E4M3, {128, 4}, swizzled(512, {{22, '\x74'}})},
                          {"a.weight_scale_2", kF32, {}, raw({0.001F})},
                          {"a.input_scale", kF32, {}, raw({1.0F})},
                          description("a", R"({"format": "nvfp4"})")});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  const Weight& weight = *weights->find("a.weight");
  EXPECT_THAT(weight.shape, ElementsAre(48, 64));
  EXPECT_EQ(weight.storage.bits, 4U);
  EXPECT_EQ(weight.storage.group_size, 16U);
  std::vector<float> expected(std::size_t{48} * 64);
  const float scale = 192.0F * 0.001F;
  std::ranges::transform(std::vector{0.5F, -1.0F, 6.0F, -6.0F, 1.5F, -0.0F, 3.0F, -4.0F}, expected.begin() + 33 * 64 + 32,
                         [&](float code) { return code * scale; });
  EXPECT_EQ(model.values("a.weight"), expected);
  EXPECT_EQ(model.values_by_row("a.weight"), expected);
  EXPECT_THAT(model.defects(), testing::IsEmpty());
}

TEST(ComfyUi, TheMetadataMayPutTheLowNibbleFirst) {
  const auto model = [](std::string_view order) {
    std::string codes(16 * 8, '\0');
    codes.replace(0, 4, kGolden);
    return Checkpoint({{"a.weight", kU8, {16, 8}, codes},
                       {"a.weight_scale", kF8E4M3, {128, 4}, std::string(512, '\x38')},
                       {"a.weight_scale_2", kF32, {}, raw({1.0F})},
                       description("a", R"({"format": "nvfp4", "orig_shape": [1, 8]})")},
                      "", fmt::format(R"({{"ballast_fp4_nibble_order":"{}"}})", order));
  };
  EXPECT_THAT(model("high_first").values("a.weight"), ElementsAre(0.5F, -1, 6, -6, 1.5F, 0, 3, -4));
  EXPECT_THAT(model("low_first").values("a.weight"), ElementsAre(-1, 0.5F, -6, 6, 0, 1.5F, -4, 3));
  EXPECT_TRUE(
      model("low").refused(Errc::kCorrupt, "metadata 'ballast_fp4_nibble_order' is 'low', expected 'high_first' or 'low_first'"));
}

// 160 x 160: two rows of tiles, of which each has two.
TEST(ComfyUi, Mxfp8HasSwizzledScalesOfAllTiles) {
  constexpr std::uint64_t kSize = 160;
  std::string scales(256 * 8, '\0');
  std::vector<float> expected;
  for (std::uint64_t r = 0; r < kSize; ++r) {
    for (std::uint64_t c = 0; c < kSize / 32; ++c) {
      const auto exponent = static_cast<unsigned>((r + 3 * c) % 250 + 1);
      scales[(r / 128 * 2 + c / 4) * 512 + r % 32 * 16 + r / 32 % 4 * 4 + c % 4] = static_cast<char>(exponent);
      expected.insert(expected.end(), 32, std::ldexp(1.0F, static_cast<int>(exponent) - 127));
    }
  }
  const Checkpoint model(
      {{"a.weight", kF8E4M3, {kSize, kSize}, std::string(kSize * kSize, '\x38')}, {"a.weight_scale", kU8, {256, 8}, scales}}, "",
      metadata(R"({"a":{"format":"mxfp8","group_size":32}})"));
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(model.values("a.weight"), expected);
  EXPECT_EQ(model.values_by_row("a.weight"), expected);
}

TEST(ComfyUi, OriginalShapeCutsThePadding) {
  std::string codes(32 * 32, '\x38');
  for (std::size_t row = 0; row < 3; ++row) codes[row * 32 + 5] = '\x7F';  // NaN, in the padding
  const Checkpoint model({{"a.weight", kF8E4M3, {32, 32}, codes},
                          {"a.weight_scale", kU8, {128, 4}, std::string(512, '\x80')},
                          {"b.weight", kU8, {16, 16}, std::string(256, '\x22')},
                          {"b.weight_scale", kF8E4M3, {128, 4}, std::string(512, '\x38')},
                          {"b.weight_scale_2", kF32, {}, raw({1.0F})},
                          description("a", R"({"format": "mxfp8", "orig_shape": [3, 5]})"),
                          description("b", R"({"format": "nvfp4", "orig_shape": [2, 17]})")});
  const auto& weights = model.weights();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_THAT(weights->find("a.weight")->shape, ElementsAre(3, 5));
  EXPECT_THAT(model.values("a.weight"), Each(2));
  EXPECT_THAT(weights->find("b.weight")->shape, ElementsAre(2, 17));
  EXPECT_THAT(model.values("b.weight"), Each(1));
  EXPECT_EQ(model.values("b.weight").size(), 34U);
}

const std::string_view kMetadataPlace = "metadata '_quantization_metadata'";

TEST(ComfyUi, LayersWithoutTensorsAreCorrupt) {
  const TensorText weight("a.weight", kF8E4M3, {1, 2});
  EXPECT_TRUE(Checkpoint({weight}, "", metadata(R"({"gone":{"format":"float8_e4m3fn"}})"))
                  .refused(Errc::kCorrupt, fmt::format("{}: layers: gone: 'gone.weight' is missing", kMetadataPlace)));
  EXPECT_TRUE(
      Checkpoint({weight}, "", metadata(R"({"a":"float8_e4m3fn"})"))
          .refused(Errc::kCorrupt,
                   fmt::format("{}: layers: a: format is 'float8_e4m3fn', but 'a.weight_scale' is missing", kMetadataPlace)));
  EXPECT_TRUE(Checkpoint({description("gone", R"({"format":"nvfp4"})")})
                  .refused(Errc::kCorrupt, "tensor 'gone.comfy_quant': 'gone.weight' is missing"));
  EXPECT_TRUE(Checkpoint({weight, {"b.scale_weight", kF32, {}}, {"scaled_fp8", kF8E4M3, {0}}})
                  .refused(Errc::kCorrupt, "tensor 'b.scale_weight': 'b.weight' is missing"));
}

TEST(ComfyUi, DescriptionsThatContradictAreCorrupt) {
  const TensorText weight("a.weight", kF8E4M3, {1, 2});
  const TensorText scale("a.weight_scale", kF32, {});
  const Checkpoint both({weight, scale, description("a", R"({"format":"float8_e5m2"})")}, "",
                        metadata(R"({"a":{"format":"float8_e4m3fn"}})"));
  EXPECT_TRUE(both.refused(Errc::kCorrupt, fmt::format("tensor 'a.comfy_quant': format is 'float8_e5m2', but {}: layers: a gives "
                                                       "'float8_e4m3fn'",
                                                       both.message(kMetadataPlace))));
  EXPECT_TRUE(Checkpoint({weight, scale}, "", metadata(R"({"a":"float8_e5m2"})"))
                  .refused(Errc::kCorrupt, "tensor 'a.weight': dtype is F8_E4M3, expected F8_E5M2 or U8"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kF8E5M2, {1, 1}}, {"a.scale_weight", kF32, {}}, {"scaled_fp8", kF32, {2}}})
                  .refused(Errc::kCorrupt,
                           "tensor 'a.weight': dtype is F8_E5M2, but the dtype of the tensor 'scaled_fp8' means F8_E4M3"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kBF16, {1, 1}}, {"a.scale_weight", kF32, {}}, {"scaled_fp8", kF32, {2}}})
                  .refused(Errc::kCorrupt, "tensor 'a.weight': dtype is BF16, expected F8_E4M3 or F8_E5M2"));
}

TEST(ComfyUi, WrongShapesAndDtypesAreCorrupt) {
  const TensorText block_scale("a.weight_scale", kF8E4M3, {128, 4});
  const TensorText second("a.weight_scale_2", kF32, {});
  const TensorText nvfp4 = description("a", R"({"format":"nvfp4"})");
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {16, 4}}, block_scale, second, nvfp4})
                  .refused(Errc::kCorrupt, "tensor 'a.weight': has 8 columns, expected a multiple of 16 for nvfp4"));
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kU8, {144, 8}}, block_scale, second, nvfp4})
          .refused(Errc::kCorrupt,
                   "tensor 'a.weight_scale': shape is [128, 4], expected [256, 4]: 'a.weight' has 144 rows and 16 columns"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {16, 8}}, {"a.weight_scale", kU8, {128, 4}}, second, nvfp4})
                  .refused(Errc::kCorrupt, "tensor 'a.weight_scale': dtype is U8, expected F8_E4M3"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {16}}, block_scale, second, nvfp4})
                  .refused(Errc::kCorrupt, "tensor 'a.weight': shape is [16], expected a matrix"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {16, 8}}, block_scale, nvfp4})
                  .refused(Errc::kCorrupt, "tensor 'a.comfy_quant': format is 'nvfp4', but 'a.weight_scale_2' is missing"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kU8, {16, 8}}, block_scale, {"a.weight_scale_2", kF32, {16}}, nvfp4})
                  .refused(Errc::kCorrupt, "tensor 'a.weight_scale_2': shape is [16], expected [] or [1]"));
  EXPECT_TRUE(
      Checkpoint({{"a.weight", kF8E4M3, {2, 2}}, {"a.weight_scale", kF32, {2, 1}}}, "", metadata(R"({"a":"float8_e4m3fn"})"))
          .refused(Errc::kCorrupt, "tensor 'a.weight_scale': shape is [2, 1], expected [] or [1]"));
  EXPECT_TRUE(
      Checkpoint(
          {{"a.weight", kU8, {16, 8}}, block_scale, second, description("a", R"({"format":"nvfp4","orig_shape":[16,17]})")})
          .refused(Errc::kCorrupt,
                   "tensor 'a.comfy_quant': orig_shape is [16, 17], which padded to a multiple of 16 is not [16, 16]"));
}

TEST(ComfyUi, WhatIsNotUnderstoodIsUnsupported) {
  const TensorText weight("a.weight", kI8, {1, 2});
  EXPECT_TRUE(
      Checkpoint({weight}, "", metadata(R"({"a":{"format":"int8_tensorwise"}})"))
          .refused(Errc::kUnsupported,
                   fmt::format("{}: layers: a: format 'int8_tensorwise' cannot be decoded, only float8_e4m3fn, float8_e5m2, "
                               "nvfp4, mxfp8",
                               kMetadataPlace)));
  EXPECT_TRUE(
      Checkpoint({weight, description("a", R"({"format":"nvfp4","convrot":true})")})
          .refused(Errc::kUnsupported,
                   "tensor 'a.comfy_quant': convrot is true: Ballast does not know this setting, which may change the weights"));
  EXPECT_TRUE(Checkpoint({weight}, "", R"({"_quantization_metadata":"{\"format_version\":\"2.0\",\"layers\":{}}"})")
                  .refused(Errc::kUnsupported, fmt::format("{}: format_version is '2.0', expected '1.0'", kMetadataPlace)));
}

TEST(ComfyUi, DescriptionsThatCannotBeReadAreCorrupt) {
  const TensorText weight("a.weight", kU8, {1, 2});
  EXPECT_TRUE(Checkpoint({weight}, "", R"({"_quantization_metadata":"[]"})")
                  .refused(Errc::kCorrupt, fmt::format("{}: not an object", kMetadataPlace)));
  EXPECT_TRUE(Checkpoint({weight}, "", R"({"_quantization_metadata":"{}"})")
                  .refused(Errc::kCorrupt, fmt::format("{}: layers is missing, expected an object", kMetadataPlace)));
  EXPECT_TRUE(Checkpoint({weight, description("a", R"({"format":7})")})
                  .refused(Errc::kCorrupt, "tensor 'a.comfy_quant': format is 7, expected a string"));
  EXPECT_TRUE(Checkpoint({weight, {"a.comfy_quant", kF32, {1}}})
                  .refused(Errc::kCorrupt, "tensor 'a.comfy_quant': dtype is F32, expected U8"));
  const Checkpoint model({weight, description("a", R"({"format")")});
  const auto& broken = model.weights();
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Errc::kCorrupt);
  EXPECT_THAT(broken.error().message, testing::StartsWith(model.message("tensor 'a.comfy_quant': invalid JSON: ")));
}

TEST(ComfyUi, ScalesOfLayersThatAreNotListedAreRefused) {
  const Checkpoint model({{"a.weight", kF8E4M3, {1, 2}}, {"a.weight_scale", kF32, {}}}, "", metadata("{}"));
  EXPECT_TRUE(fails(model.weights(), Errc::kUnsupported,
                    model.path() +
                        ": tensor 'a.weight_scale' beside 'a.weight' looks like part of a quantized weight, but belongs "
                        "to none; convert without --dtype copies it"));
}

}  // namespace
}  // namespace ballast
