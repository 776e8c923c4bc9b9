#include <ballast/calibrate.h>

#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "tests/support/tensors.h"

namespace ballast {
namespace {

constexpr std::string_view kConfig =
    R"({"model_type":"mixtral","vocab_size":32,"hidden_size":64,"intermediate_size":64,"num_hidden_layers":2,)"
    R"("num_attention_heads":2,"num_key_value_heads":2,"num_local_experts":3,"num_experts_per_tok":2,"tie_word_embeddings":true})";

std::string values(std::uint64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.2F);
  std::vector<float> made(count);
  for (float& value : made) value = normal(random);
  return test::raw(made);
}

// Two layers with three experts each.
std::vector<test::TensorText> tensors() {
  std::mt19937 random(7);
  std::vector<test::TensorText> made{{"model.embed_tokens.weight", DType::kF32, {32, 64}, values(2048, random)},
                                     {"model.norm.weight", DType::kF32, {64}, test::raw(std::vector<float>(64, 1))}};
  const auto matrix = [&](const std::string& name, std::uint64_t rows) {
    made.push_back({name + ".weight", DType::kF32, {rows, 64}, values(rows * 64, random)});
  };
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* const norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      made.push_back({layer + norm, DType::kF32, {64}, test::raw(std::vector<float>(64, 1))});
    }
    for (const char* const part : {"q", "k", "v", "o"}) matrix(fmt::format("{}self_attn.{}_proj", layer, part), 64);
    matrix(layer + "block_sparse_moe.gate", 3);
    for (const int expert : {0, 1, 2}) {
      for (const char* const part : {"w1", "w2", "w3"})
        matrix(fmt::format("{}block_sparse_moe.experts.{}.{}", layer, expert, part), 64);
    }
  }
  return made;
}

std::vector<float> read(const Model& model, std::string_view name) {
  const auto tensor = model.read(name);
  if (!tensor) return {};
  std::vector<float> found(tensor->bytes().size() / sizeof(float));
  std::memcpy(found.data(), tensor->bytes().data(), tensor->bytes().size());
  return found;
}

// A memory limit of one byte records one Hessian at a time, and reads experts when they are used.
TEST(Calibrate, MemoryLimitDoesNotChangeWhatIsRecorded) {
  const test::TempDir dir;
  dir.write("model.safetensors", test::safetensors(tensors()));
  dir.write("config.json", kConfig);
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  std::mt19937 random(3);
  std::vector<std::uint32_t> ids(4 * 16);
  for (std::uint32_t& id : ids) id = random() % 32;
  const auto tokens = *cut_windows(ids, 16);
  const QuantizeConfig two_bits{.bit_width = 2, .group_size = 64, .format = QuantizeFormat::kMlx};
  for (const QuantizeConfig* const sequential : {static_cast<const QuantizeConfig*>(nullptr), &two_bits}) {
    std::vector<Model> found;
    for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1}}) {
      const std::string path = fmt::format("{}/statistics-{}.safetensors", dir.path(), limit);
      const auto done = calibrate_model(
          *model, tokens, path, {.hessian = true, .sequential = sequential, .sync = false, .work = {.memory_limit = limit}});
      ASSERT_TRUE(done) << done.error().message;
      found.push_back(*Model::open(path));
    }
    ASSERT_EQ(found[0].tensors().size(), found[1].tensors().size());
    for (const TensorInfo& tensor : found[0].tensors()) {
      const std::vector<float> expected = read(found[0], tensor.name);
      EXPECT_THAT(read(found[1], tensor.name), testing::Pointwise(testing::FloatNear(1e-3F), expected)) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace ballast
