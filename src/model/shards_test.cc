#include "model/shards.h"

#include <gmock/gmock.h>

#include "format/safetensors/header.h"
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

// Shards in memory. They own their headers but not their data.
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

// A header that is read in pieces: at least 5 MiB, with tensors of one byte.
std::string long_header() {
  std::string text;
  for (int i = 0; text.size() < 5 << 20; ++i) {
    text += fmt::format(R"({}"layers.{}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "{" : ",", i, i,
                        i + 1);
  }
  return text + "}";
}

TEST(ReadShard, LongHeaderKeepsOnlyTheNames) {
  const std::string text = long_header();
  const auto tensors = static_cast<std::size_t>(std::ranges::count(text, '{')) - 1;
  const std::string file = safetensors(text, std::string(tensors, 'x'));
  const auto shard = read_shard("f", open_memory(as_bytes(file)), {});
  ASSERT_TRUE(shard) << shard.error().message;
  EXPECT_EQ(shard->front, nullptr);
  EXPECT_EQ(shard->header.tensors.size(), tensors);
  for (std::uint32_t i = 0; i < tensors; ++i) {
    ASSERT_EQ(shard->header.tensors[i].name, fmt::format("layers.{}.weight", i));
    ASSERT_EQ(shard->header.index.find(shard->header.tensors, shard->header.tensors[i].name), i);
  }
}

TEST(ReadShard, ErrorsInALongHeaderAreTheSameAsInAShortOne) {
  const std::string text = long_header();
  const auto tensors = static_cast<std::size_t>(std::ranges::count(text, '{')) - 1;
  const auto replaced = [&](std::size_t at, std::string_view by) { return std::string(text).replace(at, by.size(), by); };
  const std::size_t middle = text.find("\"layers", text.size() / 2);
  const std::size_t last = text.rfind("\"layers");
  for (const std::string& wrong : {
           replaced(text.size() - 1, "]"),                                       // not JSON at the end
           replaced(10, "\xff"),                                                 // not UTF-8
           replaced(middle, "x").replace(last + 1, 1, "\xff"),                   // neither: UTF-8 is checked first
           replaced(last, "\"layers.0.weight\":   "),                            // a duplicate name
           replaced(middle, "'"),                                                // not JSON in the middle
           std::string(text).replace(text.find("\"U8\"", middle), 4, "\"U7\""),  // an unknown dtype
           text + "x",                                                           // more than one value
           text.substr(0, text.size() - 1),                                      // no end
       }) {
    const std::string file = safetensors(wrong, std::string(tensors, 'x'));
    const auto whole = safetensors::parse_header(as_bytes(file), file.size());
    ASSERT_FALSE(whole);
    EXPECT_TRUE(fails(read_shard("f", open_memory(as_bytes(file)), {}), whole.error().code, "f: " + whole.error().message));
  }
  const std::string file = safetensors(text, std::string(tensors - 1, 'x'));
  EXPECT_TRUE(
      fails(read_shard("f", open_memory(as_bytes(file)), {}), Errc::kCorrupt,
            fmt::format("f: file is truncated: tensors need {} bytes of data, the file has {} (1 missing); download it again",
                        tensors, tensors - 1)));
}

TEST(ReadShard, ErrorsContainTheEscapedFile) {
  EXPECT_TRUE(fails(
      read_shard("a\n\x1b", open_memory(as_bytes("{}")), {}), Errc::kCorrupt,
      R"(a\n\x1b: file of 2 bytes is too small for a SafeTensors header (at least 8 bytes); this looks like JSON: give the path of the weights or of their directory)"));
  EXPECT_TRUE(fails(read_shard("f", open_memory(as_bytes(safetensors("[]"))), {}), Errc::kCorrupt,
                    "f: invalid JSON in header: expected '{' at byte 8 of 10"));
}

TEST(ReadShard, LimitsApply) {
  const std::string file = safetensors(R"({"a":["U8",[0],[0,0]]})");
  EXPECT_TRUE(fails(read_shard("f", open_memory(as_bytes(file)), {.max_header_bytes = 4}), Errc::kCorrupt,
                    "f: header of 22 bytes exceeds the limit of 4 bytes; raise max_header_bytes if you trust the file"));
  EXPECT_TRUE(read_shard("f", open_memory(as_bytes(file)), {.strictness = Strictness::kReference}));
}

// Reports a larger size than it has.
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

TEST(ReadShard, ReadErrorsContainTheFile) {
  EXPECT_TRUE(fails(read_shard("f", std::make_unique<ShortSource>("abc", 100), {}), Errc::kIo, "f: gone"));
  const std::string front = test::safetensors_claiming(1 << 20, std::string(128 << 10, ' '));
  EXPECT_TRUE(fails(read_shard("f", std::make_unique<ShortSource>(front, 2 << 20), {}), Errc::kIo, "f: gone"));
  const std::string long_front = test::safetensors_claiming(8 << 20, long_header());
  EXPECT_TRUE(fails(read_shard("f", std::make_unique<ShortSource>(long_front, 16 << 20), {}), Errc::kIo, "f: gone"));
}

TEST(OpenShards, ErrorsContainTheFile) {
  const TempDir dir;
  const auto open_one = [](const std::string& path) { return std::move(open_shards({&path, 1}, "", {}).front()); };
  EXPECT_TRUE(fails(open_one(dir.path("f")), Errc::kNotFound, dir.path("f") + ": cannot open: No such file or directory"));
  EXPECT_TRUE(fails(open_one(dir.path()), Errc::kIo, dir.path() + ": not a regular file"));
}

TEST(CheckShards, OneFileWithoutAnIndexIsFine) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const ShardReport report = check_shards(shards.all(), nullptr, "");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(CheckShards, TensorInTwoShardsIsAContradiction) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "u"});
  shards.add("/m/b.safetensors", {"v", "t"});
  EXPECT_THAT(messages(check_shards(shards.all(), nullptr, "").contradictions),
              ElementsAre("/m/b.safetensors: tensor 't' is also in a.safetensors"));
}

TEST(CheckShards, ReportsEveryTensorInTwoShardsInOrder) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "u"});
  shards.add("/m/b.safetensors", {"v", "t"});
  shards.add("/m/c.safetensors", {"u", "v", "t", "w"});
  EXPECT_THAT(messages(check_shards(shards.all(), nullptr, "").contradictions),
              ElementsAre("/m/b.safetensors: tensor 't' is also in a.safetensors",
                          "/m/c.safetensors: tensor 'u' is also in a.safetensors",
                          "/m/c.safetensors: tensor 'v' is also in b.safetensors",
                          "/m/c.safetensors: tensor 't' is also in a.safetensors"));
}

TEST(CheckShards, TensorInTwoShardsMayBeListedForEither) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  shards.add("/m/b.safetensors", {"t"});
  const safetensors::ShardIndex index{.entries = {{.tensor = "t", .shard = "b.safetensors"}}};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(messages(report.contradictions), ElementsAre("/m/b.safetensors: tensor 't' is also in a.safetensors"));
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(CheckShards, TablesAreJoinedInTheOrderOfTheShards) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "u"});
  shards.add("/m/b.safetensors", {"v"});
  const JoinedTables joined = check_shards(shards.all(), nullptr, "").joined;
  ASSERT_EQ(joined.tensors.size(), 3);
  EXPECT_EQ(joined.tensors[1].name, "u");
  EXPECT_EQ(joined.tensors[1].file, 0);
  EXPECT_EQ(joined.tensors[2].name, "v");
  EXPECT_EQ(joined.tensors[2].file, 1);
  EXPECT_EQ(joined.index.find(joined.tensors, "v"), 2);
}

TEST(CheckShards, TensorThatItsShardLacksIsAContradiction) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "a.safetensors"}}};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(messages(report.contradictions),
              ElementsAre("/m/i.json: tensor 'u' should be in a.safetensors, but no shard of the index contains it"));
  EXPECT_THAT(report.warnings, IsEmpty());
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

TEST(CheckShards, EntriesOfShardsThatCouldNotBeOpenedAreIgnored) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "b.safetensors"}}, .total_size = 7};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(CheckShards, UnlistedTensorsAndAWrongTotalAreWarnings) {
  Shards shards;
  shards.add("/m/a.safetensors", {"t", "\\u001b"});
  const safetensors::ShardIndex index{.entries = {{.tensor = "t", .shard = "a.safetensors"}}, .total_size = 7};
  const ShardReport report = check_shards(shards.all(), &index, "/m/i.json");
  EXPECT_THAT(report.contradictions, IsEmpty());
  EXPECT_THAT(report.warnings, ElementsAre(R"(/m/i.json: tensor '\x1b' of a.safetensors is not in the index)",
                                           "/m/i.json: total_size is 7, but the shards have 2 bytes"));
}

TEST(CheckShards, RightTotalGivesNoWarning) {
  Shards shards;
  shards.add("a.safetensors", {"t", "u"});
  const safetensors::ShardIndex index{
      .entries = {{.tensor = "t", .shard = "a.safetensors"}, {.tensor = "u", .shard = "a.safetensors"}}, .total_size = 2};
  EXPECT_THAT(check_shards(shards.all(), &index, "i.json").warnings, IsEmpty());
}

}  // namespace
}  // namespace ballast
