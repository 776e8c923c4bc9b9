#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/checkpoint.h"

namespace ballast {
namespace {

using test::Checkpoint;
using test::fails;
using test::TensorText;
using enum DType;

using Tensors = std::vector<TensorText>;

Tensors with(const std::vector<TensorText>& others) {
  Tensors tensors{{"a.qweight", kI32, {2, 8}}, {"a.qzeros", kI32, {2, 1}}, {"a.scales", kF16, {2, 8}}};
  for (const TensorText& other : others) {
    const auto found = std::ranges::find(tensors, other.name, &TensorText::name);
    if (found == tensors.end()) {
      tensors.push_back(other);
    } else {
      *found = other;
    }
  }
  return tensors;
}

Checkpoint opened(const Tensors& tensors, std::string_view section, std::string_view quantize_config = "") {
  std::vector<test::FileText> files{
      {.name = "config.json",
       .text = fmt::format(R"({{"model_type": "llama", "quantization_config": {{"quant_method": "gptq"{}{}}}}})",
                           section.empty() ? "" : ", ", section)}};
  if (!quantize_config.empty()) files.push_back({.name = "quantize_config.json", .text = std::string(quantize_config)});
  return Checkpoint(tensors, files);
}

constexpr std::string_view kUsual = R"("bits": 4, "group_size": 8)";

testing::AssertionResult corrupt(const Tensors& tensors, std::string_view section, std::string_view rest) {
  return opened(tensors, section).refused(Errc::kCorrupt, rest);
}

TEST(GptqRefused, ShapesThatContradictTheConfig) {
  EXPECT_TRUE(corrupt(with({}), R"("bits": 8, "group_size": 8)",
                      "tensor 'a.qzeros': shape is [2, 1], expected [2, 2]: 'a.scales' is [2, 8] with 8 bits"));
  EXPECT_TRUE(corrupt(with({}), R"("bits": 4, "group_size": 4)",
                      "tensor 'a.scales': shape is [2, 8], expected [4, 8]: 16 columns in groups of 4"));
  EXPECT_TRUE(corrupt(with({}), R"("bits": 4, "group_size": -1)",
                      "tensor 'a.scales': shape is [2, 8], expected [1, 8]: 16 columns in groups of 16"));
  EXPECT_TRUE(corrupt(with({}), R"("bits": 3, "group_size": 8)",
                      "tensor 'a.qweight': has 8 columns, expected a multiple of 32 with 3 bits"));
}

TEST(GptqRefused, ShapesThatContradictEachOther) {
  EXPECT_TRUE(corrupt(with({{"a.scales", kF16, {2, 9}}}), kUsual,
                      "tensor 'a.qweight': shape is [2, 8], expected [2, 9]: 'a.scales' is [2, 9] with 4 bits"));
  EXPECT_TRUE(corrupt(with({{"a.qweight", kI32, {2, 12}}, {"a.scales", kF16, {2, 12}}}), kUsual,
                      "tensor 'a.qweight': has 12 columns, expected a multiple of 8 with 4 bits"));
  EXPECT_TRUE(corrupt(with({{"a.qzeros", kI32, {3, 1}}}), kUsual,
                      "tensor 'a.qzeros': shape is [3, 1], expected [2, 1]: 'a.scales' is [2, 8] with 4 bits"));
  EXPECT_TRUE(corrupt(with({{"a.g_idx", kI32, {15}}}), kUsual,
                      "tensor 'a.g_idx': shape is [15], expected [16]: 'a.qweight' is [2, 8] with 4 bits"));
  EXPECT_TRUE(corrupt(with({{"a.qweight", kI32, {2, 32}}, {"a.qzeros", kI32, {1, 3}}, {"a.scales", kF16, {1, 32}}}),
                      R"("bits": 3, "group_size": -1)", "tensor 'a.qweight': has 2 rows, expected a multiple of 3 with 3 bits"));
  EXPECT_TRUE(
      corrupt(with({{"a.scales", kF16, {16}}}), kUsual, "tensor 'a.scales': shape is [16], expected a matrix that is not empty"));
  EXPECT_TRUE(corrupt(with({{"a.qweight", kI32, {0, 8}}}), kUsual,
                      "tensor 'a.qweight': shape is [0, 8], expected a matrix that is not empty"));
}

TEST(GptqRefused, ConfigThatSaysTooLittle) {
  EXPECT_TRUE(corrupt(with({{"a.qzeros", kI32, {2, 3}}}), "",
                      "tensor 'a.qzeros': shape is [2, 3], which fits no width of codes: 'a.scales' is [2, 8]"));
  EXPECT_TRUE(
      corrupt(with({{"a.qzeros", kI32, {3, 1}}, {"a.scales", kF16, {3, 8}}}), "",
              "tensor 'a.scales': has 3 groups for 16 columns, and group_size is missing in config.json: quantization_config"));
}

TEST(GptqRefused, DTypes) {
  EXPECT_TRUE(corrupt(with({{"a.qweight", kI16, {2, 8}}}), kUsual, "tensor 'a.qweight': dtype is I16, expected I32"));
  EXPECT_TRUE(corrupt(with({{"a.qzeros", kI8, {2, 1}}}), kUsual, "tensor 'a.qzeros': dtype is I8, expected I32"));
  EXPECT_TRUE(
      corrupt(with({{"a.scales", kI32, {2, 8}}}), kUsual, "tensor 'a.scales': dtype is I32, expected F16 or BF16 or F32"));
  EXPECT_TRUE(corrupt(with({{"a.g_idx", kI64, {16}}}), kUsual, "tensor 'a.g_idx': dtype is I64, expected I32"));
}

TEST(GptqRefused, MissingTensors) {
  EXPECT_TRUE(
      corrupt({{"a.qweight", kI32, {2, 8}}, {"a.scales", kF16, {2, 8}}}, kUsual, "tensor 'a.qweight': 'a.qzeros' is missing"));
  EXPECT_TRUE(
      corrupt({{"a.qweight", kI32, {2, 8}}, {"a.qzeros", kI32, {2, 1}}}, kUsual, "tensor 'a.qweight': 'a.scales' is missing"));
  EXPECT_TRUE(
      corrupt({{"a.qzeros", kI32, {2, 1}}, {"a.scales", kF16, {2, 8}}}, kUsual, "tensor 'a.qzeros': 'a.qweight' is missing"));
  EXPECT_TRUE(corrupt(with({}), R"("bits": 4, "group_size": 8, "desc_act": true)",
                      "tensor 'a.qweight': 'a.g_idx' is missing: desc_act is true in config.json: quantization_config"));
  EXPECT_TRUE(
      corrupt(with({{"a.weight", kF16, {8, 16}}}), kUsual, "tensor 'a.weight': the weight is stored twice, also as 'a.qweight'"));
}

TEST(GptqRefused, FormatsByName) {
  const auto unsupported = [](std::string_view more, std::string_view format) {
    return fails(
        opened(with({}), fmt::format("{}, {}", kUsual, more)).weights(), Errc::kUnsupported,
        fmt::format("config.json: quantization_config: checkpoint_format is '{}', which Ballast cannot decode; it decodes "
                    "gptq, gptq_v2 and gptq_p",
                    format));
  };
  EXPECT_TRUE(unsupported(R"("checkpoint_format": "marlin")", "marlin"));
  EXPECT_TRUE(unsupported(R"("is_marlin_format": true)", "marlin"));
  EXPECT_TRUE(unsupported(R"("format": "BitBLAS")", "bitblas"));
  EXPECT_TRUE(fails(opened(with({}), R"("bits": 5, "group_size": 8)").weights(), Errc::kUnsupported,
                    "config.json: quantization_config: bits is 5 for 'a.qweight'; Ballast decodes 2, 3, 4 and 8, and up to 8 of "
                    "gptq_p"));
}

TEST(GptqRefused, SettingsThatAreNoNumbers) {
  constexpr std::string_view kPlace = "config.json: quantization_config: ";
  EXPECT_TRUE(fails(opened(with({}), R"("bits": "four")").weights(), Errc::kCorrupt,
                    fmt::format("{}bits is 'four', expected a whole number", kPlace)));
  EXPECT_TRUE(fails(opened(with({}), R"("bits": 0)").weights(), Errc::kCorrupt,
                    fmt::format("{}bits is 0, expected 2, 3, 4 or 8", kPlace)));
  EXPECT_TRUE(fails(opened(with({}), R"("bits": 4, "group_size": 0)").weights(), Errc::kCorrupt,
                    fmt::format("{}group_size is 0, expected a positive number, or -1 for all columns", kPlace)));
}

TEST(GptqRefused, ConfigsThatContradictEachOther) {
  const auto refused = [](std::string_view section, std::string_view side, std::string_view how) {
    return fails(
        opened(with({}), section, side).weights(), Errc::kCorrupt,
        fmt::format("config.json: quantization_config: {}; remove the section that does not belong to these weights", how));
  };
  EXPECT_TRUE(refused(kUsual, R"({"bits": 8, "group_size": 8})", "bits is 4, but quantize_config.json has bits 8"));
  EXPECT_TRUE(refused(kUsual, R"({"bits": 4, "group_size": -1})", "group_size is 8, but quantize_config.json has group_size -1"));
  EXPECT_TRUE(refused(R"("bits": 4, "desc_act": false)", R"({"bits": 4, "desc_act": true})",
                      "desc_act is false, but quantize_config.json has desc_act true"));
  EXPECT_TRUE(refused(R"("bits": 4, "checkpoint_format": "gptq")", R"({"bits": 4, "format": "gptq_v2"})",
                      "checkpoint_format is 'gptq', but quantize_config.json has format 'gptq_v2'"));
  EXPECT_TRUE(opened(with({}), kUsual, R"({"bits": 4, "group_size": 8, "damp_percent": 0.1})").weights());
}

TEST(GptqRefused, ShardWithoutConfig) {
  const Checkpoint model(with({{"a.g_idx", kI32, {16}}}));
  EXPECT_TRUE(
      model.refused(Errc::kUnsupported,
                    "tensor 'a.qweight': codes of GPTQ, whose bits, group_size and checkpoint_format are in config.json or "
                    "quantize_config.json only; open the directory that contains it"));
}

TEST(GptqRefused, SectionWithoutCodes) {
  const Checkpoint model = opened({{"a.weight", kF16, {8, 16}}}, kUsual);
  EXPECT_TRUE(fails(model.weights(), Errc::kCorrupt,
                    fmt::format("{}: config.json: quantization_config says 'gptq', but no tensor is named *.qweight; remove the "
                                "section if the weights are not quantized",
                                model.path())));
}

TEST(GptqRefused, OtherPackingsOfAutoRound) {
  const auto refused = [](std::string_view section, Errc code, std::string_view message) {
    const Checkpoint model(
        with({}), {{.name = "config.json",
                    .text = fmt::format(R"({{"quantization_config": {{"quant_method": "auto-round", {}}}}})", section)}});
    return fails(model.weights(), code, fmt::format("config.json: quantization_config: {}", message));
  };
  EXPECT_TRUE(refused(R"("packing_format": "auto_round:fp8_static")", Errc::kUnsupported,
                      "packing_format is 'auto_round:fp8_static', which Ballast cannot decode; it decodes auto_round:auto_gptq, "
                      "auto_round:auto_awq and auto_round"));
  EXPECT_TRUE(refused(R"("bits": 4)", Errc::kCorrupt,
                      "packing_format is missing, expected auto_round:auto_gptq, auto_round:auto_awq or auto_round"));
  EXPECT_TRUE(refused(
      R"("packing_format": "auto_round", "rotation_config": {"type": "hadamard"})", Errc::kUnsupported,
      "rotation_config is set: the weights are rotated, and Ballast cannot undo that; use a checkpoint without rotation"));
}

TEST(GptqRefused, TransposedLayersOfGpt2) {
  const Checkpoint model(
      with({}),
      {{.name = "config.json", .text = R"({"model_type": "gpt2", "quantization_config": {"quant_method": "gptq", "bits": 4}})"}});
  EXPECT_TRUE(
      fails(model.weights(), Errc::kUnsupported,
            fmt::format("{}: config.json: model_type is 'gpt2', whose dense layers are transposed, unlike these quantized "
                        "ones; dequantize the model with the tool that made it",
                        model.path())));
}

}  // namespace
}  // namespace ballast
