#include <ballast/config.h>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Config, EmptyObjectHasTheDefaults) {
  const auto config = parse_config("{}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model_type, "");
  EXPECT_THAT(config->architectures, IsEmpty());
  EXPECT_EQ(config->vocab_size, std::nullopt);
  EXPECT_EQ(config->num_key_value_heads, std::nullopt);
  EXPECT_EQ(config->head_dim, std::nullopt);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->rope_theta, 1e6);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_FALSE(config->quantized);
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_EQ(config->json, "{}");
}

TEST(Config, ReadsWhatTransformersWrites) {
  const auto config = parse_config(R"({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 40960, "rms_norm_eps": 1e-05, "rope_theta": 1000000, "rope_scaling": null,
    "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": true, "bos_token_id": 151643, "eos_token_id": 151645,
    "pad_token_id": -1, "torch_dtype": "bfloat16"
  })");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model_type, "qwen3");
  EXPECT_THAT(config->architectures, ElementsAre("Qwen3ForCausalLM"));
  EXPECT_EQ(config->vocab_size, 151936);
  EXPECT_EQ(config->hidden_size, 1024);
  EXPECT_EQ(config->intermediate_size, 3072);
  EXPECT_EQ(config->num_hidden_layers, 28);
  EXPECT_EQ(config->num_attention_heads, 16);
  EXPECT_EQ(config->num_key_value_heads, 8);
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->max_position_embeddings, 40960);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 1e6);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_TRUE(config->mlp_bias);
  EXPECT_EQ(config->bos_token_id, 151643);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(151645));
  EXPECT_EQ(config->pad_token_id, -1);
}

TEST(Config, KeysMayBeCamelCase) {
  const auto config = parse_config(R"({
    "vocabSize": 1, "hiddenSize": 2, "intermediateSize": 3, "numLayers": 4, "numHeads": 5, "numKvHeads": 6, "headDim": 7,
    "rmsNormEps": 0.5, "ropeTheta": 8, "maxPositionEmbeddings": 9, "tieWordEmbeddings": true, "attentionBias": true,
    "mlpBias": true, "bosTokenId": 10, "eosTokenId": 11, "padTokenId": 12
  })");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->vocab_size, 1);
  EXPECT_EQ(config->hidden_size, 2);
  EXPECT_EQ(config->intermediate_size, 3);
  EXPECT_EQ(config->num_hidden_layers, 4);
  EXPECT_EQ(config->num_attention_heads, 5);
  EXPECT_EQ(config->num_key_value_heads, 6);
  EXPECT_EQ(config->head_dim, 7);
  EXPECT_EQ(config->rms_norm_eps, 0.5);
  EXPECT_EQ(config->rope_theta, 8);
  EXPECT_EQ(config->max_position_embeddings, 9);
  EXPECT_TRUE(config->tie_word_embeddings && config->attention_bias && config->mlp_bias);
  EXPECT_EQ(config->bos_token_id, 10);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(11));
  EXPECT_EQ(config->pad_token_id, 12);
}

TEST(Config, KeysMayBeInGpt2Style) {
  const auto config = parse_config(R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_positions": 1024})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 768);
  EXPECT_EQ(config->num_hidden_layers, 12);
  EXPECT_EQ(config->num_attention_heads, 12);
  EXPECT_EQ(config->intermediate_size, 3072);
  EXPECT_EQ(config->max_position_embeddings, 1024);
}

TEST(Config, KnowsOtherAliases) {
  const auto config = parse_config(R"({"d_model": 8, "num_layers": 2, "num_heads": 4, "num_kv_heads": 1, "n_ctx": 16})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 8);
  EXPECT_EQ(config->num_hidden_layers, 2);
  EXPECT_EQ(config->num_attention_heads, 4);
  EXPECT_EQ(config->num_key_value_heads, 1);
  EXPECT_EQ(config->max_position_embeddings, 16);
}

TEST(Config, FirstAliasWins) {
  const auto config = parse_config(R"({"n_embd": 1, "hidden_size": 2, "num_layers": 3, "num_hidden_layers": 4})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 2);
  EXPECT_EQ(config->num_hidden_layers, 4);
}

TEST(Config, HeadsAreDerivedIfAbsent) {
  const auto config = parse_config(R"({"hidden_size": 4096, "num_attention_heads": 32, "head_dim": null})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->num_key_value_heads, 32);
}

TEST(Config, NoHeadsGiveNoHeadSize) {
  const auto config = parse_config(R"({"hidden_size": 4096, "num_attention_heads": 0})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, std::nullopt);
}

TEST(Config, NestedTextConfigOverridesTheRoot) {
  const auto config = parse_config(
      R"({"model_type": "llava", "hidden_size": 1, "vocab_size": 3, "text_config": {"model_type": "llama", "hidden_size": 2}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model_type, "llava");
  EXPECT_EQ(config->hidden_size, 2);
  EXPECT_EQ(config->vocab_size, 3);
}

TEST(Config, RopeThetaMayBeInRopeParameters) {
  const auto config = parse_config(R"({"rope_parameters": {"rope_theta": 5000000, "rope_type": "default"}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_theta, 5e6);
}

TEST(Config, EndOfSequenceMayBeAList) {
  const auto config = parse_config(R"({"eos_token_id": [128001, 128008, 128009]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_token_ids, ElementsAre(128001, 128008, 128009));
}

TEST(Config, WholeNumbersMayBeWrittenAsReals) {
  const auto config = parse_config(R"({"hidden_size": 1024.0, "vocab_size": 1e3})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden_size, 1024);
  EXPECT_EQ(config->vocab_size, 1000);
}

TEST(Config, QuantizationSectionsAreRecognized) {
  EXPECT_TRUE(parse_config(R"({"quantization": {"bits": 4}})")->quantized);
  EXPECT_TRUE(parse_config(R"({"quantization_config": {"quant_method": "gptq"}})")->quantized);
  EXPECT_FALSE(parse_config(R"({"quantization_config": null})")->quantized);
}

TEST(Config, AcceptsPythonsNumbers) {
  const auto config = parse_config(R"({"limit": Infinity, "model_max_length": 1000000000000000019884624838656, "nan": NaN})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->json, R"({"limit":"Infinity","model_max_length":1e+30,"nan":"NaN"})");
}

TEST(Config, RootMustBeAnObject) { EXPECT_TRUE(fails(parse_config("[]"), Errc::kCorrupt, "the root is not an object")); }

TEST(Config, InvalidJsonIsCorrupt) {
  const auto config = parse_config("{\"hidden_size\": ");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Errc::kCorrupt);
  EXPECT_TRUE(config.error().message.starts_with("invalid JSON: ")) << config.error().message;
}

TEST(Config, SizesMustBeWholeNumbers) {
  EXPECT_TRUE(fails(parse_config(R"({"hidden_size": "big"})"), Errc::kCorrupt, "hidden_size is 'big', expected a whole number"));
  EXPECT_TRUE(fails(parse_config(R"({"hidden_size": -1})"), Errc::kCorrupt, "hidden_size is -1, expected a whole number"));
  EXPECT_TRUE(fails(parse_config(R"({"hidden_size": 1.5})"), Errc::kCorrupt, "hidden_size is 1.5, expected a whole number"));
  EXPECT_TRUE(fails(parse_config(R"({"n_embd": [1]})"), Errc::kCorrupt, "hidden_size is [1], expected a whole number"));
  EXPECT_TRUE(fails(parse_config(R"({"max_position_embeddings": 1e300})"), Errc::kCorrupt,
                    "max_position_embeddings is 1e+300, expected a whole number"));
}

TEST(Config, OtherFieldsMustHaveTheRightType) {
  EXPECT_TRUE(fails(parse_config(R"({"rms_norm_eps": NaN})"), Errc::kCorrupt, "rms_norm_eps is 'NaN', expected a number"));
  EXPECT_TRUE(
      fails(parse_config(R"({"rope_parameters": {"rope_theta": "x"}})"), Errc::kCorrupt, "rope_theta is 'x', expected a number"));
  EXPECT_TRUE(
      fails(parse_config(R"({"tie_word_embeddings": 1})"), Errc::kCorrupt, "tie_word_embeddings is 1, expected true or false"));
  EXPECT_TRUE(
      fails(parse_config(R"({"architectures": "x"})"), Errc::kCorrupt, "architectures is 'x', expected a list of strings"));
  EXPECT_TRUE(fails(parse_config(R"({"architectures": [1]})"), Errc::kCorrupt, "architectures is 1, expected a string"));
  EXPECT_TRUE(fails(parse_config(R"({"pad_token_id": "x"})"), Errc::kCorrupt, "pad_token_id is 'x', expected a whole number"));
  EXPECT_TRUE(fails(parse_config(R"({"eos_token_id": [1, 2.5]})"), Errc::kCorrupt,
                    "eos_token_id is [1,2.5], expected a whole number or a list of whole numbers"));
}

TEST(Config, FirstErrorIsReported) {
  EXPECT_TRUE(fails(parse_config(R"({"hidden_size": true, "vocab_size": false})"), Errc::kCorrupt,
                    "vocab_size is false, expected a whole number"));
}

TEST(Config, ValuesInMessagesAreEscapedAndShortened) {
  EXPECT_TRUE(
      fails(parse_config(R"({"hidden_size": "\u202e"})"), Errc::kCorrupt, R"(hidden_size is '\u202e', expected a whole number)"));
  EXPECT_TRUE(fails(parse_config(fmt::format(R"({{"hidden_size": "{}"}})", std::string(200, 'a'))), Errc::kCorrupt,
                    fmt::format("hidden_size is '{}…', expected a whole number", std::string(80, 'a'))));
}

}  // namespace
}  // namespace ballast
