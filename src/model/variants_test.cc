#include "model/variants.h"

#include <gmock/gmock.h>

#include "base/file_names.h"
#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Kind = VariantName::Kind;

TEST(Variants, NamesOfDiffusersAndTransformersAreParsed) {
  const auto expect = [](std::string_view name, std::string_view stem, std::string_view variant, Kind kind) {
    const auto parsed = parse_variant_name(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->stem, stem) << name;
    EXPECT_EQ(parsed->variant, variant) << name;
    EXPECT_EQ(parsed->kind, kind) << name;
  };
  expect("model.safetensors", "model", "", Kind::kSingle);
  expect("model.fp16.safetensors", "model", "fp16", Kind::kSingle);
  expect("diffusion_pytorch_model.non_ema.safetensors", "diffusion_pytorch_model", "non_ema", Kind::kSingle);
  expect("model-00001-of-00002.safetensors", "model", "", Kind::kShard);
  expect("model.fp16-00001-of-00002.safetensors", "model", "fp16", Kind::kShard);
  expect("diffusion_pytorch_model-00002-of-00002.fp16.safetensors", "diffusion_pytorch_model", "fp16", Kind::kShard);
  expect("model.safetensors.index.json", "model", "", Kind::kIndex);
  expect("model.safetensors.index.fp16.json", "model", "fp16", Kind::kIndex);
  expect("diffusion_pytorch_model.safetensors.fp16.index.json", "diffusion_pytorch_model", "fp16", Kind::kIndex);
}

TEST(Variants, OtherNamesAreNotVariants) {
  for (const char* name :
       {"", "model", "model.bin", "model.fp16.bin", "models.safetensors", "model..safetensors", "model.a.b.safetensors",
        "model-a.safetensors", "model.fp16-00001-of-00002.fp16.safetensors", "model.safetensors.json",
        "model.safetensors.index.a.b.json", "adapter_model.fp16.safetensors", "model_index.json"}) {
    EXPECT_FALSE(parse_variant_name(name)) << name;
  }
}

TEST(Variants, PlainWeightsComeFirst) {
  const auto choice =
      choose_variant({"config.json", "model.bf16.safetensors", "model.fp16.safetensors", "model.safetensors"}, "");
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_THAT(choice->names, ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(choice->warnings, ElementsAre("the variants bf16, fp16 are ignored because the plain weights are used"));
}

TEST(Variants, OtherWeightsCountAsPlain) {
  const auto choice = choose_variant({"model.fp16.safetensors", "weights.mlx"}, "");
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_THAT(choice->names, ElementsAre("weights.mlx"));
}

TEST(Variants, ChosenVariantIsNotMixed) {
  const auto choice =
      choose_variant({"config.json", "model.fp16.safetensors", "model.safetensors", "weights.safetensors"}, "fp16");
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_THAT(choice->names, ElementsAre("config.json", "model.fp16.safetensors"));
  EXPECT_THAT(choice->warnings, IsEmpty());
}

TEST(Variants, ShardsTakePrecedenceOverASingleFile) {
  const auto choice = choose_variant({"model.fp16-00001-of-00001.safetensors", "model.fp16.safetensors"}, "fp16");
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_THAT(choice->names, ElementsAre("model.fp16-00001-of-00001.safetensors"));
  EXPECT_THAT(choice->warnings, ElementsAre("model.fp16.safetensors is ignored because model in shards is used"));
}

TEST(Variants, OnlyVariantsNeedAChoice) {
  EXPECT_TRUE(fails(choose_variant({"model.bf16.safetensors", "model.fp16.safetensors"}, ""), Errc::kInvalidArgument,
                    "only weights of variants: bf16, fp16; give variant bf16"));
}

TEST(Variants, MissingVariantListsTheOthers) {
  EXPECT_TRUE(fails(choose_variant({"model.fp16.safetensors"}, "fp1"), Errc::kNotFound,
                    "no weights of the variant 'fp1'; variants here: fp16; did you mean 'fp16'?"));
  EXPECT_TRUE(fails(choose_variant({"model.safetensors"}, "fp16"), Errc::kNotFound,
                    "no weights of the variant 'fp16'; there are plain weights only"));
}

}  // namespace
}  // namespace ballast
