#include <ballast/architecture.h>

#include <deque>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;

// A table of tensors that owns its names and shapes.
class Table {
 public:
  void add(std::string name, std::vector<std::uint64_t> shape) {
    tensors_.push_back({.name = names_.emplace_back(std::move(name)), .shape = shapes_.emplace_back(std::move(shape))});
  }
  void remove(std::string_view name) {
    std::erase_if(tensors_, [&](const TensorInfo& tensor) { return tensor.name == name; });
  }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  std::uint64_t parameters() const {
    return std::accumulate(tensors_.begin(), tensors_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const TensorInfo& tensor) { return sum + tensor.elements(); });
  }

 private:
  std::deque<std::string> names_;
  std::deque<std::vector<std::uint64_t>> shapes_;
  std::vector<TensorInfo> tensors_;
};

// Two layers, hidden size 8, four heads of size 3, two key-value heads.
ModelConfig small_config(std::string model_type) {
  return {.model_type = std::move(model_type),
          .vocab_size = 10,
          .hidden_size = 8,
          .intermediate_size = 20,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 3};
}

Table small_llama() {
  Table table;
  table.add("model.embed_tokens.weight", {10, 8});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    table.add(layer + "input_layernorm.weight", {8});
    table.add(layer + "self_attn.q_proj.weight", {12, 8});
    table.add(layer + "self_attn.k_proj.weight", {6, 8});
    table.add(layer + "self_attn.v_proj.weight", {6, 8});
    table.add(layer + "self_attn.o_proj.weight", {8, 12});
    table.add(layer + "post_attention_layernorm.weight", {8});
    table.add(layer + "mlp.gate_proj.weight", {20, 8});
    table.add(layer + "mlp.up_proj.weight", {20, 8});
    table.add(layer + "mlp.down_proj.weight", {8, 20});
  }
  table.add("model.norm.weight", {8});
  table.add("lm_head.weight", {10, 8});
  return table;
}

ArchitectureReport check(const ModelConfig& config, const Table& table) {
  const auto report = check_architecture(config, table.tensors());
  EXPECT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report && *report);
  return report && *report ? **report : ArchitectureReport{};
}

TEST(Architecture, Qwen3OfHalfABillionHas310Tensors) {
  Table table;
  table.add("model.embed_tokens.weight", {151936, 1024});
  for (int i = 0; i < 28; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    table.add(layer + "input_layernorm.weight", {1024});
    table.add(layer + "self_attn.q_proj.weight", {16 * 128, 1024});
    table.add(layer + "self_attn.k_proj.weight", {8 * 128, 1024});
    table.add(layer + "self_attn.v_proj.weight", {8 * 128, 1024});
    table.add(layer + "self_attn.o_proj.weight", {1024, 16 * 128});
    table.add(layer + "self_attn.q_norm.weight", {128});
    table.add(layer + "self_attn.k_norm.weight", {128});
    table.add(layer + "post_attention_layernorm.weight", {1024});
    table.add(layer + "mlp.gate_proj.weight", {3072, 1024});
    table.add(layer + "mlp.up_proj.weight", {3072, 1024});
    table.add(layer + "mlp.down_proj.weight", {1024, 3072});
  }
  table.add("model.norm.weight", {1024});
  ASSERT_EQ(table.tensors().size(), 310);
  ASSERT_EQ(table.parameters(), 596'049'920);

  const auto config = parse_config(R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "head_dim": 128,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "tie_word_embeddings": true})");
  ASSERT_TRUE(config) << config.error().message;
  const ArchitectureReport report = check(*config, table);
  EXPECT_EQ(report.expected_tensors, 310);
  EXPECT_TRUE(report.ok());
}

TEST(Architecture, LlamaAndMistralHaveTheSameTensors) {
  for (const char* type : {"llama", "mistral"}) {
    const ArchitectureReport report = check(small_config(type), small_llama());
    EXPECT_EQ(report.expected_tensors, 21);
    EXPECT_TRUE(report.ok());
  }
}

TEST(Architecture, ReportsDifferences) {
  Table table = small_llama();
  table.remove("model.layers.1.mlp.up_proj.weight");
  table.remove("lm_head.weight");
  table.remove("model.norm.weight");
  table.add("model.norm.weight", {8, 1});
  table.add("model.layers.2.mlp.up_proj.weight", {20, 8});
  const ArchitectureReport report = check(small_config("llama"), table);
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(report.missing, ElementsAre("lm_head.weight", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(report.unexpected, ElementsAre("model.layers.2.mlp.up_proj.weight"));
  ASSERT_EQ(report.misshaped.size(), 1);
  EXPECT_EQ(report.misshaped[0].name, "model.norm.weight");
  EXPECT_THAT(report.misshaped[0].expected, ElementsAre(8));
  EXPECT_THAT(report.misshaped[0].found, ElementsAre(8, 1));
}

TEST(Architecture, EachKindOfDifferenceFailsTheCheck) {
  EXPECT_TRUE(ArchitectureReport{}.ok());
  EXPECT_FALSE((ArchitectureReport{.missing = {"a"}}.ok()));
  EXPECT_FALSE((ArchitectureReport{.unexpected = {"a"}}.ok()));
  EXPECT_FALSE((ArchitectureReport{.misshaped = {{.name = "a", .expected = {}, .found = {}}}}.ok()));
}

TEST(Architecture, TiedEmbeddingsNeedNoHeadButMayHaveOne) {
  ModelConfig config = small_config("llama");
  config.tie_word_embeddings = true;
  Table table = small_llama();
  EXPECT_TRUE(check(config, table).ok());
  table.remove("lm_head.weight");
  EXPECT_TRUE(check(config, table).ok());
  table.add("lm_head.weight", {1, 1});
  EXPECT_EQ(check(config, table).misshaped.size(), 1);
}

TEST(Architecture, BareStackOfLayersHasNoPrefixAndNoHead) {
  const Table llama = small_llama();
  Table table;
  for (const TensorInfo& tensor : llama.tensors()) {
    std::string_view name = tensor.name;
    if (name == "lm_head.weight") continue;
    name.remove_prefix(std::string_view("model.").size());
    table.add(std::string(name), {tensor.shape.begin(), tensor.shape.end()});
  }
  EXPECT_TRUE(check(small_config("llama"), table).ok());
}

TEST(Architecture, OtherHeadsAreNotChecked) {
  ModelConfig config = small_config("llama");
  config.architectures = {"LlamaForSequenceClassification"};
  EXPECT_FALSE(check_architecture(config, {}).value().has_value());
}

TEST(Architecture, RotaryBuffersOfOldCheckpointsAreAccepted) {
  Table table = small_llama();
  table.add("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
  EXPECT_TRUE(check(small_config("llama"), table).ok());
}

TEST(Architecture, Qwen2HasQueryKeyAndValueBiases) {
  Table table = small_llama();
  EXPECT_THAT(check(small_config("qwen2"), table).missing,
              ElementsAre("model.layers.0.self_attn.k_proj.bias", "model.layers.0.self_attn.q_proj.bias",
                          "model.layers.0.self_attn.v_proj.bias", "model.layers.1.self_attn.k_proj.bias",
                          "model.layers.1.self_attn.q_proj.bias", "model.layers.1.self_attn.v_proj.bias"));
  for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    table.add(layer + "q_proj.bias", {12});
    table.add(layer + "k_proj.bias", {6});
    table.add(layer + "v_proj.bias", {6});
  }
  EXPECT_TRUE(check(small_config("qwen2"), table).ok());
}

TEST(Architecture, Qwen3HasQueryAndKeyNorms) {
  Table table = small_llama();
  for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    table.add(layer + "q_norm.weight", {3});
    table.add(layer + "k_norm.weight", {3});
  }
  EXPECT_TRUE(check(small_config("qwen3"), table).ok());
  EXPECT_EQ(check(small_config("llama"), table).unexpected.size(), 4);
}

TEST(Architecture, BiasesFollowTheConfig) {
  ModelConfig config = small_config("llama");
  config.attention_bias = true;
  config.mlp_bias = true;
  Table table = small_llama();
  EXPECT_EQ(check(config, table).missing.size(), 14);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    table.add(layer + "self_attn.q_proj.bias", {12});
    table.add(layer + "self_attn.k_proj.bias", {6});
    table.add(layer + "self_attn.v_proj.bias", {6});
    table.add(layer + "self_attn.o_proj.bias", {8});
    table.add(layer + "mlp.gate_proj.bias", {20});
    table.add(layer + "mlp.up_proj.bias", {20});
    table.add(layer + "mlp.down_proj.bias", {8});
  }
  EXPECT_TRUE(check(config, table).ok());
}

TEST(Architecture, UnknownAndQuantizedModelsAreNotChecked) {
  const auto unknown = check_architecture(small_config("mamba"), {});
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->has_value(), false);
  ModelConfig quantized = small_config("llama");
  quantized.quantized = true;
  const auto report = check_architecture(quantized, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->has_value(), false);
}

TEST(Architecture, ErrorNamesASizeThatTheConfigLacks) {
  using Size = std::optional<std::uint64_t> ModelConfig::*;
  const std::vector<std::pair<Size, std::string>> sizes{
      {&ModelConfig::vocab_size, "vocab_size"},
      {&ModelConfig::hidden_size, "hidden_size"},
      {&ModelConfig::intermediate_size, "intermediate_size"},
      {&ModelConfig::num_hidden_layers, "num_hidden_layers"},
      {&ModelConfig::num_attention_heads, "num_attention_heads"},
      {&ModelConfig::num_key_value_heads, "num_key_value_heads"},
      {&ModelConfig::head_dim, "head_dim"},
  };
  for (const auto& [size, name] : sizes) {
    ModelConfig config = small_config("llama");
    config.*size = std::nullopt;
    EXPECT_TRUE(fails(check_architecture(config, {}), Errc::kCorrupt, "config has no " + name));
    config.*size = 0;
    EXPECT_TRUE(fails(check_architecture(config, {}), Errc::kCorrupt, name + " is 0"));
  }
}

TEST(Architecture, AbsurdLayerCountsAreRefused) {
  ModelConfig config = small_config("llama");
  config.num_hidden_layers = 65537;
  EXPECT_TRUE(fails(check_architecture(config, {}), Errc::kCorrupt, "num_hidden_layers is 65537, the maximum is 65536"));
}

TEST(Architecture, HeadsThatOverflowAreRefused) {
  ModelConfig config = small_config("llama");
  config.num_key_value_heads = std::uint64_t{1} << 62;
  config.head_dim = 4;
  EXPECT_TRUE(fails(check_architecture(config, {}), Errc::kCorrupt, "4611686018427387904 heads of 4 overflow 64 bits"));
}

}  // namespace
}  // namespace ballast
