#include <ballast/mlx_quantization.h>

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kAffine = QuantizationMode::kAffine;

MlxQuantization parse(std::string_view text) {
  const auto config = parse_mlx_quantization(text);
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(MlxQuantization{});
}

MlxQuantization parse_section(std::string_view text) {
  const auto config = parse_mlx_quantization_section(text);
  EXPECT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config.value()) << "not quantized";
  return config.value().value_or(MlxQuantization{});
}

TensorQuantization affine(unsigned bits, unsigned group_size) {
  return {.bits = bits, .group_size = group_size, .mode = kAffine};
}

TEST(MlxQuantization, EmptyObjectHasTheDefaults) {
  const auto config = parse("{}");
  EXPECT_EQ(config.defaults, affine(4, 64));
  EXPECT_THAT(config.per_tensor, IsEmpty());
  EXPECT_EQ(config.find("any.weight"), affine(4, 64));
}

TEST(MlxQuantization, OverridesAreFoundByName) {
  const auto config = parse(R"({"bits": 3, "group_size": 32, "per_tensor": {
    "model.layers.0.self_attn.v_proj.weight": {"bits": 6, "group_size": 128},
    "model.embed_tokens.weight": {"bits": 8}, "lm_head": false, "model.norm": true}})");
  EXPECT_EQ(config.find("model.layers.0.self_attn.v_proj.weight"), affine(6, 128));
  EXPECT_EQ(config.find("model.embed_tokens.weight"), affine(8, 32));
  EXPECT_EQ(config.find("lm_head.weight"), std::nullopt);
  EXPECT_EQ(config.find("model.norm.weight"), affine(3, 32));
  EXPECT_EQ(config.find("model.layers.5.mlp.gate_proj.weight"), affine(3, 32));
}

TEST(MlxQuantization, LayerNameStandsForItsTensors) {
  const auto config = parse(R"({"per_tensor": {"model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64}}})");
  for (const char* const suffix : {"", ".weight", ".scales", ".biases"}) {
    EXPECT_EQ(config.find(std::string("model.layers.0.mlp.down_proj") + suffix), affine(8, 64)) << suffix;
  }
  EXPECT_EQ(config.find("model.layers.0.mlp.down_proj.bias"), affine(4, 64));
  EXPECT_EQ(config.find("model.layers.0.mlp.down_proj.weight.scales"), affine(4, 64));
}

TEST(MlxQuantization, PrefixOfTheLanguageModelMayBeOnEitherSide) {
  const auto bare = parse(R"({"per_tensor": {"model.v_proj": {"bits": 6}, "model.o_proj.weight": {"bits": 8}}})");
  EXPECT_EQ(bare.find("language_model.model.v_proj.weight"), affine(6, 64));
  EXPECT_EQ(bare.find("language_model.model.v_proj"), affine(6, 64));
  EXPECT_EQ(bare.find("language_model.model.o_proj.weight"), affine(8, 64));
  EXPECT_EQ(bare.find("language_model.language_model.model.v_proj"), affine(4, 64));

  const auto prefixed =
      parse(R"({"per_tensor": {"language_model.model.v_proj": {"bits": 6}, "language_model.model.o_proj.weight": {"bits": 8}}})");
  EXPECT_EQ(prefixed.find("model.v_proj.weight"), affine(6, 64));
  EXPECT_EQ(prefixed.find("model.v_proj"), affine(6, 64));
  EXPECT_EQ(prefixed.find("model.o_proj.weight"), affine(8, 64));
  EXPECT_EQ(prefixed.find("language_model.model.v_proj.weight"), affine(6, 64));
}

TEST(MlxQuantization, NearerNamesWin) {
  const auto config = parse(R"({"per_tensor": {
    "*": {"bits": 2}, "language_model.a": {"bits": 3}, "language_model.a.weight": {"bits": 5}, "a": {"bits": 6},
    "a.weight": {"bits": 8}, "language_model.b": {"bits": 3}, "language_model.b.weight": {"bits": 5}, "b": {"bits": 6},
    "language_model.c": {"bits": 3}, "language_model.c.weight": {"bits": 5}, "language_model.d": {"bits": 3}}})");
  EXPECT_EQ(config.find("a.weight"), affine(8, 64));
  EXPECT_EQ(config.find("b.weight"), affine(6, 64));
  EXPECT_EQ(config.find("c.weight"), affine(5, 64));
  EXPECT_EQ(config.find("d.weight"), affine(3, 64));
  EXPECT_EQ(config.find("e.weight"), affine(2, 64));
}

TEST(MlxQuantization, FirstGlobThatMatchesWins) {
  const auto config = parse(R"({"per_tensor": {
    "model.layers.?.mlp.*": {"bits": 3}, "*.layers.*": {"bits": 5}, "*.embed": false, "x[y": {"bits": 8}}})");
  EXPECT_THAT(config.patterns, ElementsAre("model.layers.?.mlp.*", "*.layers.*", "*.embed", "x[y"));
  EXPECT_EQ(config.find("model.layers.7.mlp.up_proj.weight"), affine(3, 64));
  EXPECT_EQ(config.find("model.layers.17.mlp.up_proj.weight"), affine(5, 64));
  EXPECT_EQ(config.find("model.embed.weight"), std::nullopt);
  EXPECT_EQ(config.find("x[y.weight"), affine(8, 64));
  EXPECT_EQ(config.find("model.norm.weight"), affine(4, 64));
}

TEST(MlxQuantization, SectionOfAModelConfigHasOverridesBesideItsNumbers) {
  const auto config = parse_section(R"({"model_type": "gemma4", "quantization": {
    "bits": 4, "group_size": 64, "mode": "affine", "quant_method": "auto", "other": {"x": 1}, "number": 7, "list": [{"bits": 9}],
    "language_model.model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 32},
    "language_model.model.layers.0.self_attn.v_proj": {"bits": 6}, "lm_head": false}, "quantization_config": 7})");
  EXPECT_EQ(config.defaults, affine(4, 64));
  EXPECT_THAT(config.per_tensor, SizeIs(3));
  EXPECT_EQ(config.find("language_model.model.layers.0.mlp.down_proj.weight"), affine(8, 32));
  EXPECT_EQ(config.find("language_model.model.layers.0.self_attn.v_proj.weight"), affine(6, 64));
  EXPECT_EQ(config.find("language_model.model.layers.5.mlp.gate_proj.weight"), affine(4, 64));
  EXPECT_EQ(config.find("lm_head.weight"), std::nullopt);
}

TEST(MlxQuantization, SecondNameOfTheSectionIsTakenWhenItIsMlxs) {
  EXPECT_EQ(parse_section(R"({"quantization": null, "quantization_config": {"bits": 8, "group_size": 128}})").defaults,
            affine(8, 128));
  EXPECT_EQ(parse_section(R"({"quantization_config": {"quant_method": "mlx"}})").defaults, affine(4, 64));
  EXPECT_EQ(parse_section(R"({"quantization_config": {"quant_method": "affine"}})").defaults, affine(4, 64));
  EXPECT_EQ(parse_section(R"({"quantization_config": {"quant_method": "mxfp8", "mode": "mxfp8"}})").defaults.bits, 8);
  EXPECT_EQ(parse_section(R"({"quantization_config": {"quant_method": null, "bits": 5}})").defaults, affine(5, 64));
}

TEST(MlxQuantization, TwoSectionsThatDifferAreRefused) {
  EXPECT_EQ(parse_section(R"({"quantization": {"bits": 8}, "quantization_config": {"bits": 8, "mode": "affine"}})").defaults.bits,
            8);
  EXPECT_TRUE(fails(
      parse_mlx_quantization_section(R"({"quantization": {"bits": 4}, "quantization_config": {"bits": 8, "group_size": 32}})"),
      Errc::kCorrupt,
      "quantization says 4 bits, group size 64, mode affine; quantization_config says 8 bits, group size 32, mode affine; make "
      "them equal"));
}

TEST(MlxQuantization, ModelWithoutASectionIsNotQuantized) {
  for (const char* const text : {"{}", R"({"model_type": "gemma4"})", R"({"quantization": null})"}) {
    const auto config = parse_mlx_quantization_section(text);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(*config, std::nullopt);
  }
}

TEST(MlxQuantization, ModesHaveNumbersOfTheirOwn) {
  using enum QuantizationMode;
  EXPECT_EQ(parse(R"({"mode": "mxfp4"})").defaults, (TensorQuantization{.bits = 4, .group_size = 32, .mode = kMxfp4}));
  EXPECT_EQ(parse(R"({"mode": "mxfp8"})").defaults, (TensorQuantization{.bits = 8, .group_size = 32, .mode = kMxfp8}));
  EXPECT_EQ(parse(R"({"mode": "nvfp4"})").defaults, (TensorQuantization{.bits = 4, .group_size = 16, .mode = kNvfp4}));
  EXPECT_EQ(parse(R"({"mode": "nvfp4", "bits": 4, "group_size": 16})").defaults.mode, kNvfp4);
}

// As MLX does: a layer whose mode is not named is affine, and shares group sizes with layers of its mode only.
TEST(MlxQuantization, OverrideWithoutAModeIsAffine) {
  const auto config = parse(R"({"mode": "mxfp4", "per_tensor": {
    "router": {"bits": 8}, "gate": {"group_size": 32, "bits": 8}, "head": {"mode": "mxfp8"}, "same": true}})");
  EXPECT_EQ(config.find("router.weight"), affine(8, 64));
  EXPECT_EQ(config.find("gate.weight"), affine(8, 32));
  EXPECT_EQ(config.find("head.weight"), (TensorQuantization{.bits = 8, .group_size = 32, .mode = QuantizationMode::kMxfp8}));
  EXPECT_EQ(config.find("same.weight"), config.defaults);
}

TEST(MlxQuantization, WholeNumbersMayHaveADecimalPoint) {
  EXPECT_EQ(parse(R"({"bits": 8.0, "group_size": 3.2e1})").defaults, affine(8, 32));
}

TEST(MlxQuantization, EveryNumberIsChecked) {
  const auto corrupt = [](std::string_view text, std::string_view message) {
    EXPECT_TRUE(fails(parse_mlx_quantization(text), Errc::kCorrupt, message)) << text;
  };
  corrupt(R"({"bits": 7})", "bits is 7, mode affine allows 2, 3, 4, 5, 6, 8");
  corrupt(R"({"bits": 0})", "bits is 0, mode affine allows 2, 3, 4, 5, 6, 8");
  corrupt(R"({"bits": -4})", "bits is -4, mode affine allows 2, 3, 4, 5, 6, 8");
  corrupt(R"({"bits": 4294967300})", "bits is 4294967300, mode affine allows 2, 3, 4, 5, 6, 8");
  corrupt(R"({"bits": 4.5})", "bits is 4.5, expected a whole number");
  corrupt(R"({"bits": 1e300})", "bits is 1e+300, expected a whole number");
  corrupt(R"({"bits": "4"})", "bits is '4', expected a whole number");
  corrupt(R"({"bits": null})", "bits is null, expected a whole number");
  corrupt(R"({"bits": {"bits": 4}})", R"(bits is {\"bits\":4}, expected a whole number)");
  corrupt(R"({"group_size": 0})", "group_size is 0, mode affine allows 32, 64, 128, 256");
  corrupt(R"({"group_size": 16})", "group_size is 16, mode affine allows 32, 64, 128, 256");
  corrupt(R"({"group_size": 18446744073709551680})", "group_size is 1.8446744073709552e+19, expected a whole number");
  corrupt(R"({"mode": "mxfp4", "bits": 8})", "bits is 8, mode mxfp4 allows 4");
  corrupt(R"({"mode": "nvfp4", "group_size": 32})", "group_size is 32, mode nvfp4 allows 16");
  corrupt(R"({"mode": 4})", "mode is 4, expected a string");
  corrupt(R"({"per_tensor": {"a.b": {"bits": 1}}})", "per_tensor: 'a.b': bits is 1, mode affine allows 2, 3, 4, 5, 6, 8");
  corrupt(R"({"a.b": {"bits": 4, "group_size": 65}})", "'a.b': group_size is 65, mode affine allows 32, 64, 128, 256");
  EXPECT_TRUE(fails(parse_mlx_quantization_section(R"({"quantization": {"a.b": {"bits": true}}})"), Errc::kCorrupt,
                    "quantization: 'a.b': bits is true, expected a whole number"));
}

TEST(MlxQuantization, UnknownModeIsUnsupported) {
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"mode": "nf4"})"), Errc::kUnsupported,
                    "mode is 'nf4', it must be affine, mxfp4, mxfp8 or nvfp4"));
}

TEST(MlxQuantization, DuplicatesAreCorrupt) {
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"bits": 4, "bits": 8})"), Errc::kCorrupt, "bits is given twice"));
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"mode": "affine", "mode": "mxfp4"})"), Errc::kCorrupt, "mode is given twice"));
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"per_tensor": {"a": {"bits": 4}, "a": {"bits": 8}}})"), Errc::kCorrupt,
                    "per_tensor: 'a' is given twice"));
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"a": {"bits": 4}, "per_tensor": {"a": false}})"), Errc::kCorrupt,
                    "per_tensor: 'a' is given twice"));
}

TEST(MlxQuantization, WrongKindsAreCorrupt) {
  EXPECT_TRUE(fails(parse_mlx_quantization("not json at all {{{"), Errc::kCorrupt,
                    "invalid JSON: Problem while parsing an atom starting with the letter 'n'"));
  EXPECT_TRUE(fails(parse_mlx_quantization("[]"), Errc::kCorrupt, "the root is not an object"));
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"per_tensor": [1]})"), Errc::kCorrupt, "per_tensor is [1], expected an object"));
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"per_tensor": {"a": 4}})"), Errc::kCorrupt,
                    "per_tensor: 'a' is 4, expected an object, true or false"));
  EXPECT_TRUE(fails(parse_mlx_quantization_section("[]"), Errc::kCorrupt, "the root is not an object"));
  EXPECT_TRUE(
      fails(parse_mlx_quantization_section(R"({"quantization": 4})"), Errc::kCorrupt, "quantization is 4, expected an object"));
  EXPECT_FALSE(parse_mlx_quantization(std::string(100'000, '[')));
}

TEST(MlxQuantization, NamesAreEscapedInMessages) {
  EXPECT_TRUE(fails(parse_mlx_quantization(R"({"per_tensor": {"a\u001b[1m": 4}})"), Errc::kCorrupt,
                    R"(per_tensor: 'a\x1b[1m' is 4, expected an object, true or false)"));
}

TEST(MlxQuantization, OtherQuantizersAreUnsupported) {
  for (const char* const method : {"gptq", "awq", "fp8", "bitsandbytes", "compressed-tensors", "mxfp4"}) {
    const std::string section = fmt::format(R"({{"quant_method": "{}", "bits": 4, "group_size": 128}})", method);
    const std::string reason = fmt::format("quant_method is '{}'; only MLX weights can be read", method);
    EXPECT_TRUE(fails(parse_mlx_quantization_section(fmt::format(R"({{"quantization_config": {}}})", section)),
                      Errc::kUnsupported, "quantization_config: " + reason));
    EXPECT_TRUE(fails(parse_mlx_quantization(section), Errc::kUnsupported, reason));
  }
  EXPECT_TRUE(fails(parse_mlx_quantization_section(R"({"quantization_config": {"load_in_8bit": true}})"), Errc::kUnsupported,
                    "quantization_config: has no bits, so it is not from MLX; only MLX weights can be read"));
}

TEST(MlxQuantization, TooManyPatternsAreUnsupported) {
  std::string text = R"({"per_tensor": {"a0*": false)";
  for (int i = 1; i < 1000; ++i) text += fmt::format(R"(, "a{}*": false)", i);
  EXPECT_THAT(parse(text + "}}").patterns, SizeIs(1000));
  EXPECT_TRUE(fails(parse_mlx_quantization(text + R"(, "b*": false}})"), Errc::kUnsupported,
                    "per_tensor: more than 1000 patterns; 'b*' is the first too many"));
}

TEST(MlxQuantization, FileOfItsOwnWinsOverTheModelsConfig) {
  const TempDir dir;
  EXPECT_EQ(read_mlx_quantization(dir.path()).value(), std::nullopt);
  dir.write("config.json", "{}");
  EXPECT_EQ(read_mlx_quantization(dir.path()).value(), std::nullopt);
  dir.write("config.json", R"({"quantization": {"bits": 8}})");
  EXPECT_EQ(read_mlx_quantization(dir.path()).value()->defaults, affine(8, 64));
  dir.write("quantization_config.json", R"({"bits": 3})");
  EXPECT_EQ(read_mlx_quantization(dir.path()).value()->defaults, affine(3, 64));
}

TEST(MlxQuantization, ErrorsNameTheFile) {
  const TempDir dir;
  const std::string model = dir.write("config.json", R"({"quantization": {"bits": 9}})");
  EXPECT_TRUE(fails(read_mlx_quantization(dir.path()), Errc::kCorrupt,
                    model + ": quantization: bits is 9, mode affine allows 2, 3, 4, 5, 6, 8"));
  const std::string own = dir.write("quantization_config.json", R"({"bits": 9})");
  EXPECT_TRUE(fails(read_mlx_quantization(dir.path()), Errc::kCorrupt, own + ": bits is 9, mode affine allows 2, 3, 4, 5, 6, 8"));
  std::filesystem::remove(own);
  std::filesystem::create_symlink(dir.path("nowhere"), own);
  EXPECT_TRUE(fails(read_mlx_quantization(dir.path()), Errc::kNotFound, own + ": cannot open: No such file or directory"));
}

}  // namespace
}  // namespace ballast
