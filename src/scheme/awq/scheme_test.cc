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

std::string repeated(std::uint64_t count, std::uint32_t word) {
  std::string bytes;
  while (count-- > 0) bytes += raw<std::uint32_t>({word});
  return bytes;
}

// 16 rows of 4 columns in 2 groups. In every column, rows 0 to 7 and rows 8 to 15 have the codes 0 to 7; the zero points are 0 to
// 7, then all 1.
Tensors layer() {
  return {{"a.qweight", kI32, {4, 2}, repeated(8, 0x75316420)},
          {"a.qzeros", kI32, {2, 2}, repeated(2, 0x75316420) + repeated(2, 0x11111111)},
          {"a.scales", kF16, {2, 16}, repeated(8, 0x3C003C00) + repeated(8, 0x40004000)}};
}

std::vector<FileText> config(std::string_view section) {
  return {{.name = "config.json", .text = fmt::format(R"({{"quantization_config": {{"quant_method": "awq", {}}}}})", section)}};
}

constexpr std::string_view kUsual = R"("bits": 4, "group_size": 2, "zero_point": true, "version": "gemm")";

// Rows of two zeros and two times twice the code minus 1.
std::vector<float> expected() {
  std::vector<float> all;
  for (int row = 0; row < 16; ++row) {
    const auto value = static_cast<float>(2 * (row % 8 - 1));
    all.insert(all.end(), {0, 0, value, value});
  }
  return all;
}

TEST(Awq, LayersAreWeights) {
  const Checkpoint model(layer(), config(kUsual));
  EXPECT_THAT(model.values("a.weight"), ElementsAreArray(expected()));
  EXPECT_EQ(model.weights()->scheme(), "awq");
  const Weight& weight = *model.weights()->find("a.weight");
  EXPECT_EQ(weight.dtype, kF16);
  EXPECT_THAT(weight.shape, ElementsAre(16, 4));
  EXPECT_EQ(weight.storage.mode, "gemm");
  EXPECT_EQ(weight.storage.bits, 4);
  EXPECT_EQ(weight.storage.group_size, 2);
  EXPECT_THAT(weight.tensors, ElementsAre("a.qweight", "a.qzeros", "a.scales"));
  EXPECT_THAT(model.defects(), IsEmpty());
}

TEST(Awq, RowsAreReadAlone) {
  const Checkpoint model(layer(), config(kUsual));
  ASSERT_TRUE(model.weights());
  std::vector<float> values(3 * 4);
  const auto read = model.weights()->read_rows("a.weight", 6, 3, kF32, std::as_writable_bytes(std::span(values)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(values, ElementsAre(0, 0, 10, 10, 0, 0, 12, 12, 0, 0, -2, -2));
}

TEST(Awq, Configs) {
  const std::vector<std::vector<FileText>> all{
      config(R"("w_bit": 4, "q_group_size": 2, "version": "GEMM")"),
      config(R"("bits": 4)"),
      {{.name = "quant_config.json", .text = R"({"w_bit": 4, "q_group_size": 2, "zero_point": true, "version": "GEMM"})"}},
      {{.name = "config.json",
        .text = R"({"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4,
                    "group_size": 128, "extra_config": {".*a": {"group_size": 2}}}})"}},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_THAT(Checkpoint(layer(), all[i]).values("a.weight"), ElementsAreArray(expected())) << i;
  }
}

TEST(Awq, ScalesOfActivationsAreKept) {
  Tensors tensors = layer();
  tensors.emplace_back("act.scales", kF16, std::vector<std::uint64_t>{4});
  const Checkpoint model(tensors, config(kUsual));
  ASSERT_TRUE(model.weights()) << model.weights().error().message;
  EXPECT_THAT(model.weights()->weights(), SizeIs(2));
  EXPECT_FALSE(model.weights()->find("act.scales")->is_quantized());
}

TEST(Awq, ScalesOfZeroAreDefects) {
  Tensors tensors = layer();
  tensors[2].data = repeated(8, 0x3C000000) + repeated(8, 0x7E003C00);
  EXPECT_THAT(Checkpoint(tensors, config(kUsual)).defects(),
              ElementsAre("tensor 'a.scales': 8 of 32 scales are NaN or infinite, the first at index 17",
                          "tensor 'a.scales': 8 of 32 scales are zero, the first at index 0"));
}

TEST(Awq, OtherVersionsAreRefused) {
  const auto refused = [](std::string_view section, std::string_view what) {
    return fails(Checkpoint(layer(), config(section)).weights(), Errc::kUnsupported,
                 fmt::format("config.json: quantization_config: {}, which Ballast cannot decode; it decodes version gemm", what));
  };
  for (const std::string_view version : {"gemv", "gemv_fast", "marlin", "exllama"}) {
    EXPECT_TRUE(refused(fmt::format(R"("bits": 4, "version": "{}")", version), fmt::format("version is '{}'", version)));
  }
  EXPECT_TRUE(refused(R"("bits": 4, "version": "gemm", "backend": "llm-awq")", "backend is 'llm-awq'"));
  EXPECT_TRUE(fails(Checkpoint(layer(), config(R"("bits": 8)")).weights(), Errc::kUnsupported,
                    "config.json: quantization_config: bits is 8 for 'a.qweight'; Ballast decodes 4"));
}

TEST(Awq, ShapesThatDisagreeAreCorrupt) {
  const auto refused = [](std::size_t i, TensorText tensor, std::string_view rest) {
    Tensors tensors = layer();
    tensors[i] = std::move(tensor);
    return Checkpoint(tensors, config(kUsual)).refused(Errc::kCorrupt, rest);
  };
  EXPECT_TRUE(
      refused(0, {"a.qweight", kI32, {4, 3}}, "tensor 'a.scales': shape is [2, 16], expected [2, 24]: 'a.qweight' is [4, 3]"));
  EXPECT_TRUE(refused(0, {"a.qweight", kI32, {3, 2}}, "tensor 'a.qweight': has 3 rows, expected a multiple of group_size 2"));
  EXPECT_TRUE(
      refused(0, {"a.qweight", kI32, {8, 2}}, "tensor 'a.scales': shape is [2, 16], expected [4, 16]: 8 columns in groups of 2"));
  EXPECT_TRUE(refused(0, {"a.qweight", kI16, {4, 2}}, "tensor 'a.qweight': dtype is I16, expected I32"));
  EXPECT_TRUE(refused(0, {"a.qweight", kI32, {8}}, "tensor 'a.qweight': shape is [8], expected a matrix that is not empty"));
  EXPECT_TRUE(
      refused(1, {"a.qzeros", kI32, {1, 2}}, "tensor 'a.qzeros': shape is [1, 2], expected [2, 2]: 'a.scales' is [2, 16]"));
  EXPECT_TRUE(refused(1, {"b.qzeros", kI32, {2, 2}}, "tensor 'a.qweight': 'a.qzeros' is missing"));
  EXPECT_TRUE(refused(2, {"b.scales", kF16, {2, 16}}, "tensor 'a.qweight': 'a.scales' is missing"));
}

TEST(Awq, ShardWithoutConfigIsRefused) {
  EXPECT_TRUE(Checkpoint(layer()).refused(Errc::kUnsupported,
                                          "tensor 'a.qweight': codes of AWQ, whose group_size and version are in config.json or "
                                          "quant_config.json only; open the directory that contains it"));
}

TEST(Awq, ConfigsThatContradictEachOtherAreCorrupt) {
  std::vector<FileText> files = config(kUsual);
  files.push_back({.name = "quant_config.json", .text = R"({"w_bit": 4, "q_group_size": 128})"});
  EXPECT_TRUE(
      fails(Checkpoint(layer(), files).weights(), Errc::kCorrupt,
            "config.json: quantization_config: group_size is 2, but quant_config.json has q_group_size 128; remove the section "
            "that does not belong to these weights"));
}

TEST(Awq, SectionWithoutCodesIsCorrupt) {
  const Checkpoint model({{"a.weight", kF16, {16, 4}}}, config(kUsual));
  EXPECT_TRUE(
      fails(model.weights(), Errc::kCorrupt,
            fmt::format("{}: config.json: quantization_config says 'awq', but no tensor is named *.qweight; remove the section "
                        "if the weights are not quantized",
                        model.path())));
}

}  // namespace
}  // namespace ballast
