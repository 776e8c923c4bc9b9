#include "calibrate/imatrix.h"

#include <cstring>

#include <gmock/gmock.h>

#include "calibrate/statistics.h"
#include "tests/support/gguf_file.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::GgufFile;
using test::raw;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kF16 = 1;

GgufFile imatrix() { return std::move(GgufFile().text("general.type", "imatrix")); }

GgufFile& add(GgufFile& file, std::string_view weight, const std::vector<std::uint64_t>& ne, const std::vector<float>& sums,
              const std::vector<float>& counts) {
  file.tensor(fmt::format("{}.in_sum2", weight), ne, 0, raw(sums));
  return file.tensor(fmt::format("{}.counts", weight), {1, counts.size()}, 0, raw(counts));
}

Result<Imatrix> read(const GgufFile& file) {
  const std::string bytes = file.bytes();
  return read_imatrix(*open_memory(test::as_bytes(bytes)));
}

// Statistics of a file that is a model's, whose tensors have four columns each.
class Named {
 public:
  Named(const GgufFile& file, const std::vector<std::string>& weights) : statistics_(open(file)) {
    if (!statistics_) return;
    std::vector<test::TensorText> tensors;
    for (const std::string& weight : weights) tensors.emplace_back(weight, DType::kF32, std::vector<std::uint64_t>{2, 4});
    bytes_ = test::safetensors(tensors);
    statistics_->use_names_of(*Model::from_bytes(test::as_bytes(bytes_), "m"), {});
  }
  const Result<Statistics>& result() const { return statistics_; }
  const Statistics* operator->() const { return &statistics_.value(); }

 private:
  Result<Statistics> open(const GgufFile& file) const { return Statistics::open(dir_.write("imatrix.gguf", file.bytes()), 128); }

  TempDir dir_;
  Result<Statistics> statistics_;
  std::string bytes_;
};

TEST(Imatrix, SumsAreDividedByCounts) {
  auto file = imatrix();
  add(file, "blk.11.ffn_down.weight", {4, 1}, {8, 16, 0, 4}, {4});
  const Named statistics(file, {"model.layers.11.mlp.down_proj.weight"});
  ASSERT_TRUE(statistics.result()) << statistics.result().error().message;
  EXPECT_THAT(statistics->weights(), ElementsAre("model.layers.11.mlp.down_proj.weight"));
  EXPECT_FALSE(statistics->has_means("model.layers.11.mlp.down_proj.weight"));
  const auto layer = statistics->read("model.layers.11.mlp.down_proj.weight");
  ASSERT_TRUE(layer) << layer.error().message;
  EXPECT_THAT(layer->squares, ElementsAre(2, 4, 0, 1));
  EXPECT_THAT(layer->means, ElementsAre());
  EXPECT_EQ(layer->inputs, 4);
}

TEST(Imatrix, ExpertsHaveStatisticsOfTheirOwn) {
  auto file = imatrix();
  add(file, "blk.0.ffn_up_exps.weight", {4, 3}, {1, 1, 1, 1, 0, 0, 0, 0, 8, 8, 8, 8}, {1, 0, 2});
  const Named mixtral(
      file, {"model.layers.0.block_sparse_moe.experts.0.w3.weight", "model.layers.0.block_sparse_moe.experts.2.w3.weight"});
  ASSERT_TRUE(mixtral.result()) << mixtral.result().error().message;
  EXPECT_THAT(mixtral->weights(), ElementsAre("model.layers.0.block_sparse_moe.experts.0.w3.weight",
                                              "model.layers.0.block_sparse_moe.experts.2.w3.weight"));
  EXPECT_THAT(mixtral->read("model.layers.0.block_sparse_moe.experts.2.w3.weight")->squares, ElementsAre(4, 4, 4, 4));
  const Named qwen(file, {"model.layers.0.mlp.experts.0.up_proj.weight"});
  EXPECT_TRUE(qwen->has("model.layers.0.mlp.experts.0.up_proj.weight"));
}

TEST(Imatrix, NameThatTheModelDoesNotHaveStays) {
  auto file = imatrix();
  add(file, "blk.7.attn_q.weight", {4}, {1, 1, 1, 1}, {1});
  EXPECT_THAT(Named(file, {"model.layers.0.self_attn.q_proj.weight"})->weights(), ElementsAre("blk.7.attn_q.weight"));
}

TEST(Imatrix, OtherFilesAreRefused) {
  EXPECT_TRUE(fails(read(std::move(GgufFile().text("general.type", "model"))), Errc::kUnsupported,
                    "not an importance matrix: general.type is not 'imatrix'; make one with llama-imatrix"));
  EXPECT_TRUE(fails(read(imatrix()), Errc::kCorrupt, "no tensor is named *.in_sum2"));
  const TempDir dir;
  const std::string path = dir.write("x.gguf", "GGUF");
  const auto truncated = Statistics::open(path, 1);
  ASSERT_FALSE(truncated);
  EXPECT_THAT(truncated.error().message, HasSubstr(path + ": 4 bytes at byte 4, but the file has 4"));
}

TEST(Imatrix, ContradictionsAreRefused) {
  auto file = imatrix();
  file.tensor("a.in_sum2", {2}, 0, raw({1.0F, 1.0F}));
  EXPECT_TRUE(fails(read(file), Errc::kCorrupt, "tensor 'a.in_sum2': 'a.counts' is missing"));
  file.tensor("a.counts", {1, 2}, 0, raw({1.0F, 1.0F}));
  EXPECT_TRUE(fails(read(file), Errc::kCorrupt, "tensor 'a.in_sum2': 1 matrices, but 'a.counts' has shape [2, 1]"));

  auto half = imatrix();
  half.tensor("a.in_sum2", {2}, kF16, "aaaa").tensor("a.counts", {1}, 0, raw({1.0F}));
  EXPECT_TRUE(fails(read(half), Errc::kUnsupported, "tensor 'a.in_sum2': types are F16 and F32, expected F32"));

  auto negative = imatrix();
  add(negative, "a", {2}, {1, -2}, {1});
  EXPECT_TRUE(
      fails(read(negative), Errc::kCorrupt, "tensor 'a.in_sum2': value 1 of 'a.in_sum2' is -2, expected a number of at least 0"));

  auto cube = imatrix();
  add(cube, "a", {1, 1, 1}, {1}, {1});
  EXPECT_TRUE(fails(read(cube), Errc::kCorrupt, "tensor 'a.in_sum2': shape is [1, 1, 1], expected [matrices, columns]"));
}

}  // namespace
}  // namespace ballast
