#include "scheme/mlx/arrange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheme/mlx/name_pattern.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

test::TensorText matrix(std::string name, char value = 0) {
  return {std::move(name), DType::kF32, {2, 4}, std::string(32, value)};
}

class ArrangingForMlxLm : public testing::Test {
 protected:
  Result<MlxArrangement> arrange(const std::string& config, const std::vector<test::TensorText>& tensors) {
    dir_.write("m/config.json", config);
    dir_.write("m/model.safetensors", test::safetensors(tensors));
    model_.emplace(*Model::open(dir_.path("m")));
    return arrange_for_mlx_lm(*model_);
  }

  static std::vector<std::string> names(const Model& model) {
    std::vector<std::string> all;
    for (const TensorInfo& tensor : model.tensors()) all.emplace_back(tensor.name);
    return all;
  }

  test::TempDir dir_;
  std::optional<Model> model_;
};

TEST_F(ArrangingForMlxLm, LeavesOutATiedOutputLayer) {
  const auto made = arrange(R"({"model_type": "llama", "tie_word_embeddings": true})",
                            {matrix("model.embed_tokens.weight", 1), matrix("lm_head.weight", 2)});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(names(*made->model), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(made->left_out, ElementsAre("lm_head.weight"));
  EXPECT_THAT(made->notes, ElementsAre("left out 'lm_head.weight': mlx-lm uses the embedding as the output layer"));
  EXPECT_THAT(made->config, IsEmpty());
}

TEST_F(ArrangingForMlxLm, ComparesTheOutputLayerIfTheConfigDoesNotSay) {
  const auto same = arrange(R"({"model_type": "llama"})", {matrix("model.embed_tokens.weight", 1), matrix("lm_head.weight", 1)});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_THAT(same->left_out, ElementsAre("lm_head.weight"));
  EXPECT_THAT(same->config, ElementsAre(Pair("tie_word_embeddings", "true")));
  const auto other = arrange(R"({"model_type": "llama"})", {matrix("model.embed_tokens.weight", 1), matrix("lm_head.weight", 2)});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_FALSE(other->model);
  EXPECT_THAT(other->config, ElementsAre(Pair("tie_word_embeddings", "false")));
  EXPECT_THAT(other->notes, ElementsAre("set tie_word_embeddings to false in config.json, for mlx-lm"));
}

TEST_F(ArrangingForMlxLm, RefusesAnOutputLayerThatMlxLmCannotHave) {
  const auto made = arrange(R"({"model_type": "gemma"})", {matrix("model.embed_tokens.weight", 1), matrix("lm_head.weight", 2)});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kUnsupported);
  EXPECT_EQ(made.error().message,
            dir_.path("m") +
                ": tensor 'lm_head.weight': mlx-lm uses the embedding of model_type 'gemma' as its output layer, but "
                "the values differ; use the parquet format");
}

TEST_F(ArrangingForMlxLm, StacksExpertsByNumber) {
  std::vector<test::TensorText> tensors;
  for (int i = 0; i < 11; ++i)
    tensors.push_back(matrix("model.layers.0.mlp.experts." + std::to_string(i) + ".up_proj.weight", static_cast<char>(i)));
  tensors.push_back(matrix("model.layers.0.mlp.gate.weight"));
  const auto made = arrange(R"({"model_type": "deepseek"})", tensors);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(names(*made->model), ElementsAre("model.layers.0.mlp.gate.weight", "model.layers.0.mlp.switch_mlp.up_proj.weight"));
  const Tensor stack = *made->model->read("model.layers.0.mlp.switch_mlp.up_proj.weight");
  EXPECT_THAT(stack.shape(), ElementsAre(11, 2, 4));
  EXPECT_EQ(std::to_integer<int>(stack.bytes()[32 * 10]), 10);
  EXPECT_THAT(made->unquantized, ElementsAre("model.layers.0.mlp.gate.weight"));
  EXPECT_THAT(made->notes, ElementsAre("arranged 1 of 2 tensors as mlx-lm has them, by names and shapes"));
}

TEST_F(ArrangingForMlxLm, RefusesIncompleteExperts) {
  const std::string config = R"({"model_type": "qwen3_moe"})";
  const auto gap = arrange(config, {matrix("l.mlp.experts.0.up_proj.weight"), matrix("l.mlp.experts.2.up_proj.weight")});
  ASSERT_FALSE(gap);
  EXPECT_THAT(gap.error().message,
              HasSubstr("tensor 'l.mlp.experts.2.up_proj.weight': cannot stack the experts for mlx-lm: number "
                        "1 is missing; use the parquet format"));
  const auto other = arrange(config, {matrix("l.mlp.experts.0.up_proj.weight"),
                                      {"l.mlp.experts.1.up_proj.weight", DType::kF32, {1, 4}, std::string(16, '\0')}});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("F32 [1, 4], but 'l.mlp.experts.0.up_proj.weight' is F32 [2, 4]"));
}

TEST_F(ArrangingForMlxLm, RefusesShapesThatItCannotSplit) {
  const auto flat = arrange(R"({"model_type": "gpt2"})", {{"h.0.attn.c_attn.weight", DType::kF32, {4}, std::string(16, '\0')}});
  ASSERT_FALSE(flat);
  EXPECT_THAT(flat.error().message, HasSubstr("shape is [4], expected two or more dimensions"));
  const auto odd = arrange(R"({"model_type": "gpt_oss"})",
                           {{"model.layers.0.mlp.experts.gate_up_proj", DType::kF32, {1, 2, 3}, std::string(24, '\0')}});
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error().message, HasSubstr("shape is [1, 2, 3], cannot split 3 in two"));
}

TEST_F(ArrangingForMlxLm, RefusesArchitecturesThatMlxLmChangesInOtherWays) {
  const auto made = arrange(R"({"model_type": "deepseek_v3"})", {matrix("a.weight")});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kUnsupported);
  EXPECT_EQ(made.error().message,
            dir_.path("m") +
                ": cannot quantize model_type 'deepseek_v3' for mlx-lm: mlx-lm splits kv_b_proj into embed_q "
                "and unembed_out; use the parquet format");
}

TEST_F(ArrangingForMlxLm, NotesAnUnknownArchitecture) {
  const auto made = arrange(R"({"model_type": "x"})", {matrix("a.weight")});
  ASSERT_TRUE(made);
  EXPECT_FALSE(made->model);
  EXPECT_THAT(made->notes, ElementsAre("mlx-lm has no architecture 'x'; MLX loads the weights as arrays"));
  const auto own = arrange(R"({"model_type": "deepseek_v3", "model_file": "m.py"})", {matrix("a.weight")});
  ASSERT_TRUE(own);
  EXPECT_THAT(own->notes, IsEmpty());
}

TEST_F(ArrangingForMlxLm, DropsLayersBeyondTheModel) {
  const auto made =
      arrange(R"({"model_type": "glm4_moe", "num_hidden_layers": 2})",
              {matrix("model.layers.1.a.weight"), matrix("model.layers.2.a.weight"), matrix("model.layers.10.a.weight")});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->left_out, UnorderedElementsAre("model.layers.2.a.weight", "model.layers.10.a.weight"));
}

TEST(MlxNames, MatchTextsAndNumbers) {
  const auto found = match_mlx_name("*.experts.#.*", "model.layers.3.experts.12.up_proj.weight");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->texts, ElementsAre("model.layers.3", "up_proj.weight"));
  EXPECT_EQ(found->number, 12U);
  EXPECT_EQ(fill_mlx_name("*.stack.*", *found), "model.layers.3.stack.up_proj.weight");
  EXPECT_FALSE(match_mlx_name("*.experts.#.*", "a.experts.x.y"));
  EXPECT_FALSE(match_mlx_name("*.experts.#.*", "a.experts.99999999999999999999.y"));
  EXPECT_FALSE(match_mlx_name("a.*.b", "a.b"));
  EXPECT_TRUE(match_mlx_name("*a*", "a"));
}

TEST(MlxNames, OfTheOriginalAreNotArranged) {
  EXPECT_TRUE(is_arranged_name("qwen3_moe", "model.layers.0.mlp.switch_mlp.up_proj.weight"));
  EXPECT_FALSE(is_arranged_name("qwen3_moe", "model.layers.0.mlp.gate.weight"));
  EXPECT_TRUE(is_arranged_name("gpt2", "model.h.0.ln_1.weight"));
  EXPECT_FALSE(is_arranged_name("gpt2", "h.0.ln_1.weight"));
  EXPECT_FALSE(is_arranged_name("x", "model.h.0.ln_1.weight"));
}

}  // namespace
}  // namespace ballast
