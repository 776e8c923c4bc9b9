#include "calibrate/forward/text_model.h"

#include <cmath>

#include <gmock/gmock.h>

#include "calibrate/forward/hidden_states.h"
#include "calibrate/forward/routing.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;
using ::testing::FloatEq;

constexpr std::string_view kSizes =
    R"("vocab_size":10,"hidden_size":8,"intermediate_size":16,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2)";

// A model with an embedding and no layers but these tensors, and a config of these members.
class SmallModel {
 public:
  explicit SmallModel(std::string_view members, const std::string& embedding = "model.embed_tokens.weight",
                      const std::vector<std::string>& others = {}) {
    std::vector<test::TensorText> tensors{{embedding, DType::kF32, {10, 8}}};
    for (const std::string& other : others) tensors.push_back({other, DType::kF32, {2}});
    dir_.write("model.safetensors", test::safetensors(tensors));
    dir_.write("config.json", fmt::format("{{{}}}", members));
  }
  Result<TextModel> text() const {
    const auto model = Model::open(dir_.path());
    if (!model) return std::unexpected(model.error());
    return TextModel::make(*model);
  }
  testing::AssertionResult refused(Errc code, std::string_view message) const {
    return fails(text(), code, dir_.path() + ": " + std::string(message));
  }

 private:
  test::TempDir dir_;
};

std::string config(std::string_view model_type, std::string_view more = "") {
  return fmt::format(R"("model_type":"{}","tie_word_embeddings":true,{}{})", model_type, kSizes, more);
}

TEST(TextModel, DefaultsAreThoseOfTheArchitecture) {
  const auto llama = SmallModel(config("llama")).text();
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->head_dim, 2U);
  EXPECT_EQ(llama->head, "model.embed_tokens.weight");
  EXPECT_THAT(llama->rope.frequencies, ElementsAre(FloatEq(1)));
  EXPECT_FALSE(llama->query_key_norms);
  const auto qwen = SmallModel(config("qwen3")).text();
  ASSERT_TRUE(qwen) << qwen.error().message;
  EXPECT_EQ(qwen->head_dim, 128U);
  const auto gemma = SmallModel(config("gemma3_text", R"(,"sliding_window":4,"head_dim":16)")).text();
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_FLOAT_EQ(gemma->attention_scale, 1.0F / 16);  // of 256, whatever the heads
  EXPECT_EQ(gemma->activation, Activation::kGeluTanh);
  EXPECT_TRUE(qwen->query_key_norms);
}

TEST(TextModel, RopeOfTransformers5IsThatOfItsLayers) {
  const auto llama =
      SmallModel(config("llama", R"(,"head_dim":4,"rope_parameters":{"rope_type":"default","rope_theta":100})")).text();
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_THAT(llama->rope.frequencies, ElementsAre(FloatEq(1), FloatEq(0.1F)));
  const auto gemma = SmallModel(config("gemma3_text", R"(,"sliding_window":4,"head_dim":4,"rope_parameters":{)"
                                                      R"("full_attention":{"rope_type":"linear","factor":8,"rope_theta":10000},)"
                                                      R"("sliding_attention":{"rope_type":"default","rope_theta":100}})"))
                         .text();
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_THAT(gemma->rope.frequencies, ElementsAre(FloatEq(0.125F), FloatEq(0.00125F)));
  EXPECT_THAT(gemma->local_rope.frequencies, ElementsAre(FloatEq(1), FloatEq(0.1F)));
}

TEST(TextModel, SlidingWindowsAreThoseOfTheArchitecture) {
  const auto windows = [](std::string_view type, std::string_view more) {
    std::vector<std::uint64_t> found;
    const auto text = SmallModel(config(type, more)).text();
    EXPECT_TRUE(text) << text.error().message;
    for (const TextLayer& layer : text->layers) found.push_back(layer.window);
    return found;
  };
  EXPECT_THAT(windows("llama", R"(,"sliding_window":4)"), ElementsAre(0, 0));
  EXPECT_THAT(windows("mistral", R"(,"sliding_window":4)"), ElementsAre(4, 4));
  EXPECT_THAT(windows("mistral", R"(,"sliding_window":null)"), ElementsAre(0, 0));
  EXPECT_THAT(windows("mistral", ""), ElementsAre(4096, 4096));
  EXPECT_THAT(windows("qwen3", R"(,"sliding_window":4,"use_sliding_window":false)"), ElementsAre(0, 0));
  EXPECT_THAT(windows("qwen3", R"(,"sliding_window":4,"use_sliding_window":true,"max_window_layers":1)"), ElementsAre(0, 4));
  EXPECT_THAT(windows("gemma3_text", R"(,"sliding_window":4,"sliding_window_pattern":2)"), ElementsAre(4, 0));
  EXPECT_THAT(windows("llama", R"(,"sliding_window":4,"layer_types":["full_attention","sliding_attention"])"), ElementsAre(0, 4));
}

TEST(TextModel, LanguageModelOfAVisionModelIsFound) {
  const std::string inner =
      fmt::format(R"("model_type":"gemma3","text_config":{{{}}})", config("gemma3_text", R"(,"sliding_window":4)"));
  const auto text = SmallModel(inner, "model.language_model.embed_tokens.weight").text();
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->layer_prefix(1), "model.language_model.layers.1.");
}

TEST(TextModel, OtherModelsAreRefused) {
  constexpr std::string_view kKnown = "; Ballast can run llama, mistral, qwen2, qwen3, gemma3_text, qwen3_moe, mixtral";
  const auto unsupported = [&](const std::string& members, std::string_view message) {
    return SmallModel(members).refused(Errc::kUnsupported, std::string(message) + std::string(kKnown));
  };
  EXPECT_TRUE(unsupported(config("gpt2"), "model_type 'gpt2' is not supported"));
  EXPECT_TRUE(unsupported(std::string(kSizes), "the config has no model_type"));
  EXPECT_TRUE(unsupported(config("llama", R"(,"rope_scaling":{"type":"yarn","factor":2})"),
                          "rope type 'yarn' is not supported: it must be default, linear or llama3"));
  EXPECT_TRUE(unsupported(config("llama", R"(,"hidden_act":"relu")"), "activation 'relu' is not supported"));
  EXPECT_TRUE(unsupported(config("llama", R"(,"partial_rotary_factor":0.5)"), "partial_rotary_factor is not 1"));
  for (const char* const type : {"dynamic", "longrope", "yarn", "su", "mrope"}) {
    EXPECT_TRUE(unsupported(config("qwen2", fmt::format(R"(,"rope_scaling":{{"rope_type":"{}","factor":2}})", type)),
                            fmt::format("rope type '{}' is not supported: it must be default, linear or llama3", type)));
  }
}

TEST(TextModel, SettingsThatWouldBeIgnoredAreRefused) {
  const auto refused = [](std::string_view type, std::string_view more, std::string_view message) {
    const auto text = SmallModel(config(type, more)).text();
    if (text) return testing::AssertionFailure() << more << " is accepted";
    if (text.error().message.find(message) == std::string::npos) return testing::AssertionFailure() << text.error().message;
    return testing::AssertionSuccess();
  };
  EXPECT_TRUE(refused("llama", R"(,"rope_parameters":{"rope_theta":10000,"partial_rotary_factor":0.5})",
                      "partial_rotary_factor is not 1"));
  EXPECT_TRUE(refused("llama", R"(,"rope_traditional":true)", "rope_traditional is true"));
  EXPECT_TRUE(refused("llama", R"(,"logits_scaling":8)", "the config has logits_scaling"));
  EXPECT_TRUE(
      refused("gemma3_text", R"(,"sliding_window":4,"use_bidirectional_attention":true)", "use_bidirectional_attention is true"));
  EXPECT_TRUE(
      refused("gemma3_text", R"(,"sliding_window":4,"final_logit_softcapping":30)", "the config has final_logit_softcapping"));
  EXPECT_TRUE(refused("qwen3_moe",
                      R"(,"num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":4,"sliding_window":4,)"
                      R"("use_sliding_window":true)",
                      "use_sliding_window is true without layer_types"));
  EXPECT_TRUE(refused("qwen2", R"(,"use_sliding_window":true)", "use_sliding_window is true, but sliding_window is missing"));
  EXPECT_TRUE(refused("qwen2", R"(,"sliding_window":4,"layer_types":["full_attention","sliding_attention"])",
                      "layer 1 has sliding attention, but there is no sliding_window"));
  EXPECT_TRUE(refused("llama", R"(,"layer_types":["full_attention","chunked_attention"])", "layer type 'chunked_attention'"));
  EXPECT_TRUE(
      refused("llama", R"(,"rope_scaling":{"type":"linear"})", "the factor of rope type 'linear' is 0, it must be above 0"));
  EXPECT_TRUE(refused("llama", R"(,"rope_scaling":{"type":"linear","rope_type":"llama3","factor":2})",
                      "rope_type is 'llama3', type is 'linear'"));
  EXPECT_TRUE(refused("llama", R"(,"rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":4})",
                      "low_freq_factor is 4, high_freq_factor is 4"));
}

TEST(TextModel, TensorsThatWouldBeLeftOutAreRefused) {
  const auto with = [](const std::string& members, const std::vector<std::string>& tensors) {
    return SmallModel(members, "model.embed_tokens.weight", tensors);
  };
  const auto refused = [&](const std::string& members, const std::string& tensor) {
    const std::string type(members.substr(14, members.find('"', 14) - 14));
    const std::string whose = (tensor.starts_with("model.layers") ? "layers of " : "") + type;
    return with(members, {tensor})
        .refused(Errc::kUnsupported, fmt::format("tensor '{}': {} models have none, so it would be left out", tensor, whose));
  };
  EXPECT_TRUE(refused(config("llama"), "model.layers.0.self_attn.q_norm.weight"));
  EXPECT_TRUE(refused(config("llama"), "model.layers.1.pre_feedforward_layernorm.weight"));
  EXPECT_TRUE(refused(config("llama"), "model.layers.1.input_layernorm.bias"));
  EXPECT_TRUE(refused(config("llama"), "model.layers.0.self_attn.sinks"));
  EXPECT_TRUE(refused(config("llama"), "model.layers.0.mlp.experts.0.up_proj.weight"));
  EXPECT_TRUE(refused(config("llama"), "model.norm.bias"));
  EXPECT_TRUE(with(config("llama"), {"model.layers.2.mlp.up_proj.weight"})
                  .refused(Errc::kUnsupported,
                           "tensor 'model.layers.2.mlp.up_proj.weight': num_hidden_layers is 2, so the layer would be left out"));
  const std::string experts =
      config("qwen3_moe", R"(,"num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":4,"mlp_only_layers":[0])");
  EXPECT_TRUE(refused(experts, "model.layers.1.mlp.shared_expert.up_proj.weight"));
  EXPECT_TRUE(refused(experts, "model.layers.1.mlp.up_proj.weight"));
  EXPECT_TRUE(refused(experts, "model.layers.0.mlp.gate.weight"));
  EXPECT_TRUE(with(experts, {"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.1.up_proj.weight"}).text());
  EXPECT_TRUE(with(config("llama"), {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.k_proj.k_scale",
                                     "model.layers.0.self_attn.k_proj.bias", "vision_tower.layers.7.x"})
                  .text());
}

TEST(TextModel, BiasesThatTheConfigPromisesMustBeThere) {
  const auto corrupt = [](const std::string& members, std::string_view message) {
    return SmallModel(members).refused(Errc::kCorrupt, message);
  };
  EXPECT_TRUE(corrupt(config("llama", R"(,"attention_bias":true)"),
                      "no tensor 'model.layers.0.self_attn.q_proj.bias', which attention_bias implies"));
  EXPECT_TRUE(
      corrupt(config("llama", R"(,"mlp_bias":true)"), "no tensor 'model.layers.0.mlp.gate_proj.bias', which mlp_bias implies"));
  EXPECT_TRUE(corrupt(config("qwen2"), "no tensor 'model.layers.0.self_attn.q_proj.bias', which qwen2 implies"));
}

TEST(TextModel, TiedModelsUseTheEmbeddingWhateverElseTheyHave) {
  const auto tied = SmallModel(config("llama"), "model.embed_tokens.weight", {"lm_head.weight"}).text();
  ASSERT_TRUE(tied) << tied.error().message;
  EXPECT_EQ(tied->head, "model.embed_tokens.weight");
}

TEST(TextModel, ContradictionsAreCorrupt) {
  const auto corrupt = [](const std::string& members, std::string_view message) {
    return SmallModel(members).refused(Errc::kCorrupt, message);
  };
  EXPECT_TRUE(corrupt(R"("model_type":"llama","vocab_size":10)", "the config has no hidden_size"));
  EXPECT_TRUE(corrupt(config("llama", R"(,"head_dim":3)"), "head_dim 3 is odd"));
  EXPECT_TRUE(
      corrupt(config("llama", R"(,"layer_types":["full_attention"])"), "layer_types has 1 entries, num_hidden_layers is 2"));
  EXPECT_TRUE(corrupt(config("llama", R"(,"rope_theta":0)"), "rope_theta is 0, it must be above 0"));
  EXPECT_TRUE(corrupt(config("gemma3_text", R"(,"sliding_window":4,"query_pre_attn_scalar":"x")"),
                      "query_pre_attn_scalar is 'x', expected a number"));
  EXPECT_TRUE(corrupt(config("mixtral", R"(,"num_local_experts":2,"num_experts_per_tok":3)"),
                      "2 experts, of which 3 are used for each token, are not possible"));
  EXPECT_TRUE(SmallModel(fmt::format(R"("model_type":"llama",{})", kSizes))
                  .refused(Errc::kCorrupt, "no tensor 'lm_head.weight', and tie_word_embeddings is false"));
}

TEST(Routing, TokensGoToTheMostLikelyExperts) {
  const Experts experts{.count = 3, .per_token = 2, .intermediate = 1, .normalize = true, .module = ""};
  std::vector<float> scores{0, 1, 2, /**/ 5, 5, 1};
  const auto routed = route(scores, experts);
  ASSERT_EQ(routed[0].size(), 1U);
  EXPECT_EQ(routed[0][0].token, 1U);
  EXPECT_FLOAT_EQ(routed[0][0].weight, 0.5F);
  ASSERT_EQ(routed[1].size(), 2U);
  EXPECT_FLOAT_EQ(routed[1][0].weight, 1 / (1 + std::exp(1.0F)));
  ASSERT_EQ(routed[2].size(), 1U);
  EXPECT_FLOAT_EQ(routed[2][0].weight, 1 / (1 + std::exp(-1.0F)));
}

TEST(HiddenStates, AreTheSameInMemoryAndInAFile) {
  for (const std::uint64_t most : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    auto states = HiddenStates::make(4, 3, most);
    ASSERT_TRUE(states) << states.error().message;
    EXPECT_EQ(states->is_spilled(), most == 0);
    ASSERT_TRUE(states->write(1, std::vector<float>{1, 2, 3, 4, 5, 6}));
    std::vector<float> rows(6);
    ASSERT_TRUE(states->read(2, rows));
    EXPECT_THAT(rows, ElementsAre(4, 5, 6, 0, 0, 0));
  }
}

}  // namespace
}  // namespace ballast
