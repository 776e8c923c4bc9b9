#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::FileText;
using test::raw;
using test::TensorText;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum DType;

using Tensors = std::vector<TensorText>;
using Files = std::vector<FileText>;

std::string words(std::uint64_t count, std::uint32_t word) {
  std::string bytes;
  while (count-- > 0) bytes += raw<std::uint32_t>({word});
  return bytes;
}
std::string halves(std::uint64_t count, std::uint16_t value) {
  std::string bytes;
  while (count-- > 0) bytes += raw<std::uint16_t>({value});
  return bytes;
}

// Every row has the codes 0 to 15 of 4 bits, and a zero point of 8; the second group is scaled by 2.
Tensors layer(std::string_view name = "a", std::uint32_t zeros = 0x77777777) {
  const std::string module(name);
  return {{module + ".qweight", kI32, {2, 8}, words(8, 0x76543210) + words(8, 0xFEDCBA98)},
          {module + ".qzeros", kI32, {2, 1}, words(2, zeros)},
          {module + ".scales", kF16, {2, 8}, halves(8, 0x3C00) + halves(8, 0x4000)}};
}

std::string config(std::string_view more, std::string_view rest = "") {
  return fmt::format(R"({{{} "quantization_config": {{"quant_method": "gptq", "bits": 4, "group_size": 8{}{}}}}})", rest,
                     more.empty() ? "" : ", ", more);
}
Files files(std::string_view more = "") { return {{.name = "config.json", .text = config(more)}}; }
Files section(std::string_view text) {
  return {{.name = "config.json", .text = fmt::format(R"({{"quantization_config": {{{}}}}})", text)}};
}

std::vector<float> expected_row() { return {-8, -7, -6, -5, -4, -3, -2, -1, 0, 2, 4, 6, 8, 10, 12, 14}; }

// Eight times the same row.
std::vector<float> expected(const std::vector<float>& row = expected_row()) {
  std::vector<float> all;
  for (int i = 0; i < 8; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

TensorText index(const std::vector<std::int32_t>& groups) {
  std::string bytes;
  for (const std::int32_t group : groups) bytes += raw<std::int32_t>({group});
  return {"a.g_idx", kI32, {groups.size()}, bytes};
}

TEST(Gptq, LayersAreWeights) {
  Tensors tensors = layer();
  tensors.emplace_back("a.bias", kF16, std::vector<std::uint64_t>{8});
  const Checkpoint model(tensors, {{.name = "config.json", .text = config("", R"("torch_dtype": "bfloat16",)")}});
  EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected()));
  EXPECT_EQ(model.weights()->scheme(), "gptq");
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_EQ(weight.dtype, kBF16);
  EXPECT_THAT(weight.shape, ElementsAre(8, 16));
  EXPECT_EQ(weight.rows, 8);
  EXPECT_EQ(weight.storage.scheme, "gptq");
  EXPECT_EQ(weight.storage.mode, "gptq");
  EXPECT_EQ(weight.storage.bits, 4);
  EXPECT_EQ(weight.storage.group_size, 8);
  EXPECT_THAT(weight.tensors, ElementsAre("a.qweight", "a.qzeros", "a.scales"));
  ASSERT_THAT(model.weights()->weights(), SizeIs(2));
  EXPECT_FALSE(model.weights()->find("a.bias")->is_quantized());
  EXPECT_THAT(model.defects(), IsEmpty());
}

TEST(Gptq, RowsAreReadAlone) {
  const Checkpoint model(layer(), files());
  ASSERT_TRUE(model.weights());
  std::vector<float> values(2 * 16);
  const auto read = model.weights()->read_rows("a.weight", 5, 2, kF32, std::as_writable_bytes(std::span(values)));
  ASSERT_TRUE(read) << read.error().message;
  const std::vector<float> all = expected();
  EXPECT_THAT(values, ElementsAreArray(all.begin() + 80, all.begin() + 112));
}

TEST(Gptq, ScalesAndTheirDType) {
  for (const DType dtype : {kBF16, kF32}) {
    Tensors tensors = layer();
    tensors[2] = {"a.scales",
                  dtype,
                  {2, 8},
                  dtype == kBF16 ? halves(8, 0x3F80) + halves(8, 0x4000) : words(8, 0x3F800000) + words(8, 0x40000000)};
    const Checkpoint model(tensors, files());
    EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected()));
    EXPECT_EQ(model.weights()->find("a.weight")->dtype, dtype);
  }
}

TEST(Gptq, FormatDecidesTheZeroPoints) {
  for (const std::string_view text : {R"("checkpoint_format": "gptq_v2")", R"("format": "gptq_v2")", R"("format": "gptq_p")"}) {
    EXPECT_THAT(Checkpoint(layer("a", 0x88888888), files(text)).values("a.weight"), ElementsAreArray(expected())) << text;
  }
  EXPECT_THAT(Checkpoint(layer(), files(R"("checkpoint_format": "gptq")")).values("a.weight"), ElementsAreArray(expected()));
}

// The first row's zero point is 0, not 16; the second row's is 8, not 7.
TEST(Gptq, GptqModelBorrowsOne) {
  for (const std::string_view meta :
       {R"(["gptqmodel:0.9.0"])", R"("GPTQModel:5.8.0-dev")", R"(["optimum:1.2", "gptqmodel:1.4.0"])"}) {
    const Checkpoint model(layer("a", 0x7777776F), files(fmt::format(R"("meta": {{"quantizer": {}}})", meta)));
    std::vector<float> all = expected();
    std::ranges::transform(std::span(all).first(8), all.begin(), [](float value) { return value + 8; });
    std::ranges::transform(std::span(all).subspan(8, 8), all.begin() + 8, [](float value) { return value + 16; });
    EXPECT_THAT(model.values("a.weight"), ElementsAreArray(all)) << meta;
    EXPECT_THAT(model.defects(), IsEmpty());
  }
  for (const std::string_view meta : {R"(["gptqmodel:0.8.9"])", R"(["auto_gptq:0.9.0"])", "[]", R"("gptqmodel")"}) {
    const Checkpoint model(layer("a", 0x7777776F), files(fmt::format(R"("meta": {{"quantizer": {}}})", meta)));
    EXPECT_EQ(model.values("a.weight").at(0), -16) << meta;
    EXPECT_EQ(model.values("a.weight").at(16), -7) << meta;
    EXPECT_THAT(model.defects(), SizeIs(1));
  }
}

TEST(Gptq, GroupIndexOrdersColumns) {
  Tensors tensors = layer();
  tensors.push_back(index({1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}));
  const Checkpoint model(tensors, files(R"("desc_act": true)"));
  EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected({-16, -14, -12, -10, -4, -3, -2, -1, 0, 2, 4, 6, 4, 5, 6, 7})));
  EXPECT_THAT(model.weights()->find("a.weight")->tensors, ElementsAre("a.qweight", "a.qzeros", "a.scales", "a.g_idx"));
}

TEST(Gptq, GroupIndexOutOfRangeIsCorrupt) {
  for (const std::int32_t bad : {2, -1}) {
    Tensors tensors = layer();
    tensors.push_back(index({0, 0, 0, 0, 0, 0, 0, bad, 1, 1, 1, 1, 1, 1, 1, 1}));
    const Checkpoint model(tensors, files());
    ASSERT_TRUE(model.weights());
    const std::string message =
        fmt::format("{}/model.safetensors: tensor 'a.g_idx': column 7 is in group {}, but there are 2 groups", model.path(), bad);
    EXPECT_TRUE(fails(model.weights()->read("a.weight", kF32), Errc::kCorrupt, message));
    EXPECT_THAT(model.defects(), ElementsAre(message));
  }
}

TEST(Gptq, OneGroup) {
  Tensors tensors = layer();
  tensors[1] = {"a.qzeros", kI32, {1, 1}, words(1, 0x77777777)};
  tensors[2] = {"a.scales", kF16, {1, 8}, halves(8, 0x3C00)};
  const Files files = section(R"("quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true)");
  const Checkpoint model(tensors, files);
  EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected({-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7})));
  EXPECT_EQ(model.weights()->find("a.weight")->storage.group_size, 16);
}

TEST(Gptq, ThreeBits) {
  std::string codes;
  for (const std::uint32_t word : {0x88FAC688U, 0xC688FAC6U, 0xFAC688FAU}) codes += words(32, word);
  const Tensors tensors{{"a.qweight", kI32, {3, 32}, codes},
                        {"a.qzeros", kI32, {1, 3}, words(3, 0)},
                        {"a.scales", kF16, {1, 32}, halves(32, 0x3C00)}};
  const Checkpoint model(tensors, section(R"("quant_method": "gptq", "bits": 3, "group_size": 128)"));
  const std::vector<float> values = model.values("a.weight");
  ASSERT_THAT(values, SizeIs(32 * 32));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i % 8) - 1);
  EXPECT_EQ(model.weights()->find("a.weight")->storage.group_size, 32);
}

TEST(Gptq, OverridesOfModules) {
  Tensors tensors = layer();
  tensors.emplace_back("b.weight", kF16, std::vector<std::uint64_t>{8, 16});
  tensors.emplace_back("c.qweight", kI32, std::vector<std::uint64_t>{2, 8}, words(16, 0x03020100));
  tensors.emplace_back("c.qzeros", kI32, std::vector<std::uint64_t>{1, 2}, words(2, 0));
  tensors.emplace_back("c.scales", kF16, std::vector<std::uint64_t>{1, 8}, halves(8, 0x3C00));
  const Checkpoint model(tensors, files(R"("dynamic": {"-:b.*": {}, "+:.*c$": {"bits": 8, "group_size": -1}})"));
  EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected()));
  EXPECT_THAT(model.values("c.weight"), ElementsAreArray(expected({-1, 0, 1, 2, -1, 0, 1, 2})));
  EXPECT_EQ(model.weights()->find("c.weight")->storage.bits, 8);
  EXPECT_FALSE(model.weights()->find("b.weight")->is_quantized());
  // Without the override, the config contradicts the tensors; with a pattern that cannot be evaluated, the tensors decide.
  EXPECT_TRUE(
      Checkpoint(tensors, files())
          .refused(Errc::kCorrupt, "tensor 'c.qzeros': shape is [1, 2], expected [1, 1]: 'c.scales' is [1, 8] with 4 bits"));
  EXPECT_THAT(Checkpoint(tensors, files(R"("dynamic": {"+:(?!a)c": {"bits": 8}})")).values("c.weight"), SizeIs(64));
}

TEST(Gptq, AutoRound) {
  const auto opened = [](std::string_view method, std::string_view packing, std::uint32_t zeros) {
    const std::string text = fmt::format(
        R"("quant_method": "{}", "bits": 4, "group_size": 8, "sym": true, "packing_format": "{}", "extra_config": {{"b": {{"bits": 16}}}})",
        method, packing);
    return Checkpoint(layer("a", zeros), section(text)).values("a.weight");
  };
  EXPECT_THAT(opened("auto-round", "auto_round:auto_gptq", 0x77777777), ElementsAreArray(expected()));
  EXPECT_THAT(opened("intel/auto-round", "auto_round:gptq", 0x77777777), ElementsAreArray(expected()));
  EXPECT_THAT(opened("auto-round", "auto_round", 0x88888888), ElementsAreArray(expected()));
  EXPECT_EQ(opened("auto-round", "auto_round:auto_gptq", 0x7777776F).at(0), 0);
}

TEST(Gptq, SideFile) {
  const std::string text = R"({"bits": 4, "group_size": 8, "desc_act": false})";
  EXPECT_THAT(Checkpoint(layer(), {{.name = "quantize_config.json", .text = text}}).values("a.weight"),
              ElementsAreArray(expected()));
}

}  // namespace
}  // namespace ballast
