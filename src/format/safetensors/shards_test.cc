#include "format/safetensors/shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "format/safetensors/layout.h"

namespace ballast::safetensors {
namespace {

std::vector<TensorSpec> tensors_of(std::initializer_list<std::uint64_t> sizes) {
  std::vector<TensorSpec> tensors;
  for (const std::uint64_t size : sizes) {
    tensors.push_back({.name = fmt::format("t{}", tensors.size()), .dtype = DType::kU8, .shape = {size}});
  }
  return tensors;
}

TEST(Shards, WithoutALimitThereIsOneShard) {
  const auto shards = plan_shards(tensors_of({1 << 20, 1 << 30}), {}, 0);
  ASSERT_TRUE(shards);
  EXPECT_EQ(*shards, (std::vector<std::vector<std::size_t>>{{0, 1}}));
}

TEST(Shards, OnlyASingleLargeTensorExceedsTheLimit) {
  const auto tensors = tensors_of({600, 5000, 100, 100, 100, 900, 1500, 0, 3});
  constexpr std::uint64_t kMost = 2000;
  const Metadata metadata{{"format", "pt"}};
  const auto shards = plan_shards(tensors, metadata, kMost);
  ASSERT_TRUE(shards);
  EXPECT_GT(shards->size(), 3U);
  std::size_t next = 0;
  for (const auto& shard : *shards) {
    std::vector<TensorSpec> members;
    for (const std::size_t tensor : shard) {
      EXPECT_EQ(tensor, next++);
      members.push_back(tensors[tensor]);
    }
    const auto layout = make_layout(members, metadata);
    ASSERT_TRUE(layout);
    EXPECT_TRUE(layout->file_size <= kMost || members.size() == 1) << layout->file_size;
  }
  EXPECT_EQ(next, tensors.size());
}

TEST(Shards, HugeSizesDoNotOverflow) {
  std::vector<TensorSpec> tensors(20, {.name = "t", .dtype = DType::kU8, .shape = {std::uint64_t{1} << 60}});
  const auto shards = plan_shards(tensors, {}, UINT64_MAX);
  ASSERT_TRUE(shards);
  ASSERT_EQ(shards->size(), 2U);
  EXPECT_EQ(shards->front().size(), 15U);
}

TEST(Shards, NamesFollowTheHubConvention) {
  EXPECT_EQ(shard_name("model", 0, 1), "model.safetensors");
  EXPECT_EQ(shard_name("model", 1, 12), "model-00002-of-00012.safetensors");
}

TEST(Shards, TheIndexIsSortedByName) {
  auto tensors = tensors_of({1, 2});
  tensors[0].name = "z\"";
  const std::vector<std::vector<std::size_t>> shards{{0}, {1}};
  EXPECT_EQ(index_text("model", tensors, shards, 3), R"({
  "metadata": {
    "total_size": 3
  },
  "weight_map": {
    "t1": "model-00002-of-00002.safetensors",
    "z\"": "model-00001-of-00002.safetensors"
  }
}
)");
}

}  // namespace
}  // namespace ballast::safetensors
