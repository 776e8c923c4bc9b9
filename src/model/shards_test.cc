#include "model/shards.h"

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::safetensors;
using test::safetensors_of;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Shards in memory. Their headers borrow from their own copies, but not their data.
class Shards {
 public:
  void add(std::string path, const std::vector<std::string>& tensors) {
    auto shard = read_shard(std::move(path), open_memory(as_bytes(bytes_.emplace_back(safetensors_of(tensors)))), {});
    ASSERT_TRUE(shard) << shard.error().message;
    shards_.push_back(std::move(*shard));
  }
  std::span<const Shard> all() const { return shards_; }

 private:
  std::deque<std::string> bytes_;
  std::vector<Shard> shards_;
};

std::vector<std::string> messages(const std::vector<Error>& errors) {
  std::vector<std::string> found;
  for (const Error& error : errors) {
    EXPECT_EQ(error.code, Errc::kCorrupt);
    found.push_back(error.message);
  }
  return found;
}

TEST(ReadShard, HeaderLargerThanTheFirstReadIsFetchedWhole) {
  std::vector<std::string> names;
  for (int i = 0; i < 5000; ++i) names.push_back(fmt::format("layers.{}.weight", i));
  const std::string file = safetensors_of(names);
  ASSERT_GT(file.size(), 256 << 10);
  const auto shard = read_shard("f", open_memory(as_bytes(file)), {});
  ASSERT_TRUE(shard) << shard.error().message;
  EXPECT_EQ(shard->header.tensors.size(), 5000);
  EXPECT_EQ(shard->header.tensors.back().name, "layers.4999.weight");
}

TEST(ReadShard, ErrorsNameTheFileEscaped) {
  EXPECT_TRUE(
      fails(read_shard("a\n\x1b", open_memory(as_bytes("{}")), {}), Errc::kCorrupt,
            R"(a\n\x1b: file of 2 bytes is too small for a SafeTensors header (8 bytes at least); this looks like JSON)"));
  EXPECT_TRUE(fails(read_shard("f", open_memory(as_bytes(safetensors("[]"))), {}), Errc::kCorrupt,
                    "f: invalid JSON in header: expected '{' at byte 8 of 10"));
}

TEST(ReadShard, LimitsArePassedOn) {
  const std::string file = safetensors(R"({"a":["U8",[0],[0,0]]})");
  EXPECT_TRUE(fails(read_shard("f", open_memory(as_bytes(file)), {.max_header_bytes = 4}), Errc::kCorrupt,
                    "f: header of 22 bytes exceeds the limit of 4 bytes"));
  EXPECT_TRUE(read_shard("f", open_memory(as_bytes(file)), {.strictness = Strictness::kReference}));
}

// Claims a size that it cannot deliver.
class ShortSource final : public Source {
 public:
  explicit ShortSource(std::string bytes, std::uint64_t size) : bytes_(std::move(bytes)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > bytes_.size()) return std::unexpected(Error{.code = Errc::kIo, .message = "gone"});
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  Result<std::span<const std::byte>> map() const override { return as_bytes(bytes_); }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  std::string bytes_;
  std::uint64_t size_;
};

TEST(ReadShard, ReadErrorsNameTheFile) {
  EXPECT_TRUE(fails(read_shard("f", std::make_unique<ShortSource>("abc", 100), {}), Errc::kIo, "f: gone"));
  const std::string front = test::safetensors_claiming(1 << 20, std::string(128 << 10, ' '));
  EXPECT_TRUE(fails(read_shard("f", std::make_unique<ShortSource>(front, 2 << 20), {}), Errc::kIo, "f: gone"));
}

TEST(OpenShards, ErrorsNameTheFile) {
  const TempDir dir;
  const auto open_one = [](const std::string& path) { return std::move(open_shards({&path, 1}, "", {}).front()); };
  EXPECT_TRUE(fails(open_one(dir.path("f")), Errc::kNotFound, dir.path("f") + ": cannot open: No such file or directory"));
  EXPECT_TRUE(fails(open_one(dir.path()), Errc::kIo, dir.path() + ": is not a regular file"));
}

TEST(CheckShards, OneFileWithoutAnIndexIsFine) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const ShardReport report = check_shards(shards.all(), nullptr, "");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.oddities, IsEmpty());
}

TEST(CheckShards, TensorInTwoShardsIsAContradiction) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "u"});
  shards.add("/m/b.safetensors", {"v", "t"});
  EXPECT_THAT(messages(check_shards(shards.all(), nullptr, "").contradictions),
              ElementsAre("/m/b.safetensors: tensor 't' is also in a.safetensors"));
}

TEST(CheckShards, TensorThatItsShardLacksIsAContradiction) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "a.safetensors"}}};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(messages(report.contradictions),
              ElementsAre("/m/i.json: tensor 'u' should be in a.safetensors, but no shard that the index names has it"));
  EXPECT_THAT(report.oddities, IsEmpty());
}

TEST(CheckShards, TensorInAnotherShardThanListedIsAContradiction) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  shards.add("/m/sub/b.safetensors", {"u"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "sub/b.safetensors"}, {.tensor = "u", .shard = "sub/b.safetensors"}}};
  EXPECT_THAT(messages(check_shards(shards.all(), &index, "/m/i.json").contradictions),
              ElementsAre("/m/i.json: tensor 't' should be in sub/b.safetensors, but it is in a.safetensors"));
}

TEST(CheckShards, EntriesOfShardsThatCouldNotBeOpenedArePassedOver) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "b.safetensors"}}, .total_size = 7};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.oddities, IsEmpty());
}

TEST(CheckShards, UnlistedTensorsAndAWrongTotalAreOddities) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "\\u001b"});
  const safetensors::ShardIndex index{.entries = {{.tensor = "t", .shard = "a.safetensors"}}, .total_size = 7};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.oddities, ElementsAre(R"(/m/i.json: tensor '\x1b' of a.safetensors is not listed)",
                                           "/m/i.json: total_size is 7, the shards hold 2 bytes"));
}

TEST(CheckShards, RightTotalIsNotOdd) {
  Shards shards;
  shards.add("a.safetensors", {"t", "u"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "a.safetensors"}}, .total_size = 2};
  EXPECT_THAT(check_shards(shards.all(), &index, "i.json").oddities, IsEmpty());
}

}  // namespace
}  // namespace ballast
