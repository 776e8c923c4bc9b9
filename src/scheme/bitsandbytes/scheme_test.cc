#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::raw;
using test::TensorText;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum DType;

using Tensors = std::vector<TensorText>;

std::string floats(const std::vector<float>& values) { return test::raw(values); }

const std::vector<float> kNf4{
    -1,           -.696192801F, -.525073051F, -.394917488F, -.284441382F, -.18477343F, -.0910500363F, 0,
    .0795802996F, .160930201F,  .246112302F,  .337915242F,  .440709829F,  .562617004F, .722956836F,   1};

std::vector<float> fp4() {
  std::vector<float> values{0, .0625F, 8, 12, 4, 6, 2, 3, -0.0F, -.0625F, -8, -12, -4, -6, -2, -3};
  for (float& value : values) value /= 12;
  return values;
}

TensorText state(std::string_view json, std::string_view type = "nf4") {
  return {fmt::format("a.weight.quant_state.bitsandbytes__{}", type), kU8, {json.size()}, std::string(json)};
}

constexpr std::string_view kState = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [2, 2]})";

// 2 × 2 values in one block.
Tensors layer(std::string_view json = kState) {
  return {{"a.weight", kU8, {2, 1}, raw<std::uint8_t>({0xF0, 0x7E})},
          {"a.weight.absmax", kF32, {1}, floats({2})},
          {"a.weight.quant_map", kF32, {16}, floats(kNf4)},
          state(json)};
}

// Every value of the map, in 3 rows of 43 columns, so that blocks and bytes end inside rows.
Tensors long_layer() {
  std::string codes;
  for (int i = 0; i < 65; ++i) codes += raw<std::uint8_t>({static_cast<std::uint8_t>(i % 8 * 0x22 + 0x01)});
  return {{"a.weight", kU8, {65, 1}, codes},
          {"a.weight.absmax", kF32, {3}, floats({1, 2, 4})},
          {"a.weight.quant_map", kF32, {16}, floats(kNf4)},
          state(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [3, 43]})")};
}

float expected_at(std::size_t i) { return kNf4[i % 16] * static_cast<float>(1 << i / 64); }

TEST(BitsAndBytes, PublishedNf4) {
  const Checkpoint model(layer());
  EXPECT_THAT(model.values("a.weight"), ElementsAre(2, -2, 0, 1.445913672F));
  EXPECT_EQ(model.weights()->scheme(), "bitsandbytes");
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_EQ(weight.dtype, kBF16);
  EXPECT_THAT(weight.shape, ElementsAre(2, 2));
  EXPECT_EQ(weight.storage.mode, "nf4");
  EXPECT_EQ(weight.storage.bits, 4);
  EXPECT_EQ(weight.storage.group_size, 64);
  EXPECT_THAT(weight.tensors,
              ElementsAre("a.weight", "a.weight.absmax", "a.weight.quant_map", "a.weight.quant_state.bitsandbytes__nf4"));
  ASSERT_THAT(model.weights()->weights(), SizeIs(1));
  EXPECT_THAT(model.defects(), IsEmpty());
}

TEST(BitsAndBytes, BlocksCoverTheFlattenedWeight) {
  const Checkpoint model(long_layer());
  const std::vector<float> values = model.values("a.weight");
  ASSERT_THAT(values, SizeIs(129));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], expected_at(i)) << i;
  for (std::uint64_t row = 0; row < 3; ++row) {
    std::vector<float> one(43);
    const auto read = model.weights()->read_rows("a.weight", row, 1, kF32, std::as_writable_bytes(std::span(one)));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_THAT(one,
                ElementsAreArray(values.begin() + static_cast<int>(row) * 43, values.begin() + static_cast<int>(row + 1) * 43));
  }
}

TEST(BitsAndBytes, Fp4) {
  Tensors tensors = layer();
  tensors[0].data = raw<std::uint8_t>({0x12, 0x9D});
  tensors[2].data = floats(fp4());
  tensors[3] = state(R"({"quant_type": "fp4", "blocksize": 64, "dtype": "float32", "shape": [1, 4]})", "fp4");
  const Checkpoint model(tensors);
  EXPECT_THAT(model.values("a.weight"), ElementsAre(0.0625F / 12 * 2, 8.0F / 12 * 2, -0.0625F / 12 * 2, -1));
  EXPECT_EQ(model.weights()->find("a.weight")->storage.mode, "fp4");
  EXPECT_EQ(model.weights()->find("a.weight")->dtype, kF32);
}

TEST(BitsAndBytes, CodesStoredAsFloats) {
  for (const DType dtype : {kBF16, kF16}) {
    Tensors tensors = layer();
    tensors[0] = {"a.weight", dtype, {1, 1}, tensors[0].data};
    EXPECT_THAT(Checkpoint(tensors).values("a.weight"), ElementsAre(2, -2, 0, 1.445913672F));
  }
}

TEST(BitsAndBytes, NestedScales) {
  std::vector<float> map(256);
  for (std::size_t i = 0; i < map.size(); ++i) map[i] = static_cast<float>(i) / 256;
  Tensors tensors = long_layer();
  tensors[1] = {"a.weight.absmax", kU8, {3}, raw<std::uint8_t>({64, 128, 255})};
  tensors[3] = state(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [3, 43], "nested_blocksize": 256,
                         "nested_dtype": "float32", "nested_offset": 0.1})");
  tensors.emplace_back("a.weight.nested_absmax", kF32, std::vector<std::uint64_t>{1}, floats({0.7F}));
  tensors.emplace_back("a.weight.nested_quant_map", kF32, std::vector<std::uint64_t>{256}, floats(map));
  const Checkpoint model(tensors);
  const std::vector<float> values = model.values("a.weight");
  ASSERT_THAT(values, SizeIs(129));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float product = map[std::vector<std::size_t>{64, 128, 255}[i / 64]] * 0.7F;
    const float scale = product + 0.1F;
    EXPECT_EQ(values[i], kNf4[i % 16] * scale) << i;
  }
  EXPECT_THAT(model.weights()->find("a.weight")->tensors, SizeIs(6));
}

TEST(BitsAndBytes, Int8) {
  const Tensors tensors{{"a.weight", kI8, {2, 2}, raw<std::int8_t>({-64, 127, 1, -128})},
                        {"a.SCB", kF32, {2}, floats({2.54F, 0})},
                        {"a.weight_format", kU8, {}},
                        {"a.bias", kF16, {2}}};
  const Checkpoint model(tensors);
  EXPECT_THAT(model.values("a.weight"), ElementsAre(-64 * 2.54F * (1.0F / 127), 127 * 2.54F * (1.0F / 127), 0, 0));
  EXPECT_FLOAT_EQ(model.values("a.weight").front(), -1.28F);
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_EQ(weight.dtype, kF16);
  EXPECT_EQ(weight.storage.mode, "int8");
  EXPECT_EQ(weight.storage.bits, 8);
  EXPECT_THAT(weight.tensors, ElementsAre("a.weight", "a.SCB", "a.weight_format"));
  EXPECT_THAT(model.weights()->weights(), SizeIs(2));
  EXPECT_THAT(model.defects(), IsEmpty());
}

TEST(BitsAndBytes, ScalesThatAreNotNumbersAreDefects) {
  Tensors tensors = layer();
  tensors[1].data = floats({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(Checkpoint(tensors).defects(),
              ElementsAre("tensor 'a.weight.absmax': 1 of 1 scales are NaN or infinite, the first at index 0"));
  tensors[1].data = floats({0});
  EXPECT_THAT(Checkpoint(tensors).defects(), IsEmpty());
}

TEST(BitsAndBytes, MapOfAnotherTypeIsCorrupt) {
  Tensors tensors = layer();
  tensors[2].data = floats(fp4());
  const Checkpoint model(tensors);
  ASSERT_TRUE(model.weights());
  const std::string message =
      fmt::format("{}/model.safetensors: tensor 'a.weight.quant_map': value 0 is 0, expected -1 for nf4", model.path());
  EXPECT_TRUE(fails(model.weights()->read("a.weight", kF32), Errc::kCorrupt, message));
  EXPECT_THAT(model.defects(), ElementsAre(message));
}

TEST(BitsAndBytes, SizesThatDisagreeAreCorrupt) {
  const auto refused = [](std::size_t i, TensorText tensor, std::string_view rest) {
    Tensors tensors = layer();
    tensors[i] = std::move(tensor);
    return Checkpoint(tensors).refused(Errc::kCorrupt, rest);
  };
  EXPECT_TRUE(refused(0, {"a.weight", kU8, {3, 1}}, "tensor 'a.weight': has 3 bytes, expected 2 for shape [2, 2] in 4 bits"));
  EXPECT_TRUE(refused(0, {"a.weight", kI32, {1}}, "tensor 'a.weight': dtype is I32, expected U8 or I8 or BF16 or F16 or F32"));
  EXPECT_TRUE(refused(0, {"b.weight", kU8, {2, 1}}, "tensor 'a.weight.quant_state.bitsandbytes__nf4': 'a.weight' is missing"));
  EXPECT_TRUE(refused(1, {"a.weight.absmax", kF32, {2}}, "tensor 'a.weight.absmax': has 2 elements, expected 1 for 'a.weight'"));
  EXPECT_TRUE(refused(1, {"a.weight.absmax", kU8, {1}}, "tensor 'a.weight.absmax': dtype is U8, expected F32"));
  EXPECT_TRUE(
      refused(2, {"a.weight.quant_map", kF32, {15}}, "tensor 'a.weight.quant_map': has 15 elements, expected 16 for 'a.weight'"));
  EXPECT_TRUE(refused(2, {"b", kF32, {16}}, "tensor 'a.weight': 'a.weight.quant_map' is missing"));
  EXPECT_TRUE(refused(3, {"a.weight.quant_state.bitsandbytes__nf4", kU8, {70000}},
                      "tensor 'a.weight.quant_state.bitsandbytes__nf4': has 70000 bytes, expected at most 65536"));
}

TEST(BitsAndBytes, StatesThatMeanNothingAreCorrupt) {
  const auto refused = [](std::string_view json, std::string_view rest) {
    return Checkpoint(layer(json))
        .refused(Errc::kCorrupt, fmt::format("tensor 'a.weight.quant_state.bitsandbytes__nf4': {}", rest));
  };
  EXPECT_TRUE(refused(R"({"quant_type": "fp4"})", "quant_type is 'fp4', expected nf4"));
  EXPECT_TRUE(refused(R"({"quant_type": "nf4"})", "blocksize is missing, expected a power of two from 32 to 4096"));
  EXPECT_TRUE(refused(R"({"quant_type": "nf4", "blocksize": 48})", "blocksize is 48, expected a power of two from 32 to 4096"));
  EXPECT_TRUE(refused(R"({"quant_type": "nf4", "blocksize": 64, "shape": null})",
                      "shape is missing, expected a list of positive numbers"));
  for (const std::string_view shape : {"[]", "[0, 4]", "[-1]", "[4503599627370496, 4503599627370496]"}) {
    const Checkpoint model(layer(fmt::format(R"({{"quant_type": "nf4", "blocksize": 64, "shape": {}}})", shape)));
    ASSERT_FALSE(model.weights()) << shape;
    EXPECT_THAT(model.weights().error().message, testing::EndsWith("expected a list of positive numbers"));
  }
  constexpr std::string_view kNested =
      R"({{"quant_type": "nf4", "blocksize": 64, "shape": [2, 2], "nested_blocksize": 256, {}}})";
  EXPECT_TRUE(refused(fmt::format(kNested, R"("nested_offset": NaN)"), "nested_offset is 'NaN', expected a finite number"));
  EXPECT_TRUE(refused(fmt::format(kNested, R"("nested_dtype": "float16", "nested_offset": 0)"),
                      "nested_dtype is 'float16', expected float32"));
  EXPECT_THAT(Checkpoint(layer("[1]")).weights().error().message, testing::HasSubstr("not a quantization state"));
}

TEST(BitsAndBytes, OtherOrdersOfInt8AreUnsupported) {
  const Tensors tensors{{"a.weight", kI8, {2, 2}}, {"a.SCB", kF32, {2}}, {"a.weight_format", kU8, {}, raw<std::uint8_t>({2})}};
  EXPECT_TRUE(Checkpoint(tensors).refused(
      Errc::kUnsupported,
      "tensor 'a.weight_format': is 2 (col_turing), and Ballast decodes 0 (row) only; save the model with a newer bitsandbytes"));
  EXPECT_TRUE(Checkpoint({{"a.weight", kI8, {2, 2}}, {"a.SCB", kF32, {3}}})
                  .refused(Errc::kCorrupt, "tensor 'a.SCB': shape is [3], expected [2]: 'a.weight' is [2, 2]"));
}

TEST(BitsAndBytes, SectionWithoutCodesIsCorrupt) {
  const Checkpoint model({{"a.weight", kF16, {16, 4}}},
                         {{.name = "config.json", .text = R"({"quantization_config": {"load_in_4bit": true}})"}});
  EXPECT_TRUE(fails(model.weights(), Errc::kCorrupt,
                    fmt::format("{}: config.json: quantization_config says 'bitsandbytes', but no tensor is named *.SCB or "
                                "*.quant_state.*; remove the section if the weights are not quantized",
                                model.path())));
}

}  // namespace
}  // namespace ballast
