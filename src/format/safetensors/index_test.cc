#include "format/safetensors/index.h"

#include "tests/support/files.h"

namespace ballast::safetensors {
namespace {

using test::fails;

Result<ShardIndex> parse_shard(std::string_view shard) {
  return parse_index(fmt::format(R"({{"weight_map":{{"t":{}}}}})", shard));
}

TEST(SafetensorsIndex, EntriesKeepTheOrderOfTheFile) {
  const auto index = parse_index(R"({
    "metadata": {"total_size": 4294967296},
    "weight_map": {"z": "model-00002-of-00002.safetensors", "a\n": "sub/model-00001-of-00002.safetensors"}
  })");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->total_size, 4294967296);
  ASSERT_EQ(index->entries.size(), 2);
  EXPECT_EQ(index->entries[0].tensor, "z");
  EXPECT_EQ(index->entries[0].shard, "model-00002-of-00002.safetensors");
  EXPECT_EQ(index->entries[1].tensor, "a\n");
  EXPECT_EQ(index->entries[1].shard, "sub/model-00001-of-00002.safetensors");
}

TEST(SafetensorsIndex, TotalSizeMayBeAbsent) {
  for (const char* metadata : {"", R"("metadata":{},)", R"("metadata":null,)", R"("metadata":{"total_size":"big"},)"}) {
    const auto index = parse_index(fmt::format(R"({{{}"weight_map":{{"t":"a.safetensors"}}}})", metadata));
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_EQ(index->total_size, std::nullopt);
  }
}

TEST(SafetensorsIndex, InvalidJsonIsCorrupt) {
  const auto index = parse_index(R"({"weight_map": )");
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Errc::kCorrupt);
  EXPECT_TRUE(index.error().message.starts_with("invalid JSON: ")) << index.error().message;
}

TEST(SafetensorsIndex, WeightMapMustBeAnObject) {
  for (const char* text : {"{}", "[]", "1", "null", R"({"weight_map": []})", R"({"weight_map": null})"}) {
    EXPECT_TRUE(fails(parse_index(text), Errc::kCorrupt, "'weight_map' is missing or not an object")) << text;
  }
}

TEST(SafetensorsIndex, EmptyWeightMapIsCorrupt) {
  EXPECT_TRUE(fails(parse_index(R"({"weight_map": {}})"), Errc::kCorrupt, "'weight_map' is empty"));
}

TEST(SafetensorsIndex, ShardMustBeAString) {
  EXPECT_TRUE(fails(parse_shard("1"), Errc::kCorrupt, "the shard of tensor 't' is not a string"));
}

TEST(SafetensorsIndex, DuplicateTensorIsCorrupt) {
  EXPECT_TRUE(fails(parse_index(R"({"weight_map": {"t": "a.safetensors", "t": "b.safetensors"}})"), Errc::kCorrupt,
                    "duplicate tensor 't'"));
}

TEST(SafetensorsIndex, ShardAboveTheFolderIsCorrupt) {
  EXPECT_TRUE(fails(parse_shard(R"("../a.safetensors")"), Errc::kCorrupt,
                    "shard '../a.safetensors' of tensor 't' is outside the model directory"));
  EXPECT_TRUE(fails(parse_shard(R"("sub/../../a.safetensors")"), Errc::kCorrupt,
                    "shard 'sub/../../a.safetensors' of tensor 't' is outside the model directory"));
}

TEST(SafetensorsIndex, AbsoluteShardIsCorrupt) {
  EXPECT_TRUE(fails(parse_shard(R"("/etc/a.safetensors")"), Errc::kCorrupt,
                    "shard '/etc/a.safetensors' of tensor 't' is outside the model directory"));
}

TEST(SafetensorsIndex, ShardWithBackslashOrNulIsCorrupt) {
  EXPECT_TRUE(fails(parse_shard(R"("..\\a.safetensors")"), Errc::kCorrupt,
                    R"(shard '..\\a.safetensors' of tensor 't' is outside the model directory)"));
  EXPECT_TRUE(fails(parse_shard(R"("a\u0000.safetensors")"), Errc::kCorrupt,
                    R"(shard 'a\x00.safetensors' of tensor 't' is outside the model directory)"));
}

TEST(SafetensorsIndex, DotsInsideAShardNameAreHarmless) {
  const auto index = parse_shard(R"("model..v2...safetensors")");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->entries[0].shard, "model..v2...safetensors");
}

TEST(SafetensorsIndex, ShardNamesAreNormalized) {
  const auto index = parse_shard(R"("./sub//a.safetensors")");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->entries[0].shard, "sub/a.safetensors");
}

TEST(SafetensorsIndex, ShardOfAnotherFormatIsUnsupported) {
  EXPECT_TRUE(fails(parse_shard(R"("pytorch_model.bin")"), Errc::kUnsupported,
                    "shard 'pytorch_model.bin' of tensor 't' is not a .safetensors file"));
  EXPECT_TRUE(fails(parse_shard(R"("")"), Errc::kUnsupported, "shard '' of tensor 't' is not a .safetensors file"));
}

TEST(SafetensorsIndex, NamesAreEscapedInMessages) {
  EXPECT_TRUE(fails(parse_index(R"({"weight_map": {"\u001b[2J'\n": "\u001b.bin"}})"), Errc::kUnsupported,
                    R"(shard '\x1b.bin' of tensor '\x1b[2J\'\n' is not a .safetensors file)"));
}

}  // namespace
}  // namespace ballast::safetensors
