#include <filesystem>

#include <gmock/gmock.h>

#include <ballast/model.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::safetensors;
using test::safetensors_of;
using test::TempDir;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::string_view kFirst = "model-00001-of-00002.safetensors";
constexpr std::string_view kSecond = "model-00002-of-00002.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string index_of(std::initializer_list<std::pair<std::string_view, std::string_view>> entries) {
  std::string map;
  for (const auto& [tensor, shard] : entries) map += fmt::format(R"({}"{}":"{}")", map.empty() ? "" : ",", tensor, shard);
  return fmt::format(R"({{"metadata":{{"total_size":3}},"weight_map":{{{}}}}})", map);
}

// Two shards, one with 'a' and 'b' and one with 'c', and their index.
void write_sharded(const TempDir& dir) {
  dir.write(kFirst, safetensors(R"({"__metadata__":{"format":"pt","n":"1"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "AB"));
  dir.write(kSecond,
            safetensors(R"({"__metadata__":{"extra":"x","n":"2"},"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "C"));
  dir.write(kIndex, index_of({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}}));
}

TEST(ModelDirectory, ShardsAreJoinedIntoOneTable) {
  const TempDir dir;
  write_sharded(dir);
  for (const std::string& path : {dir.path(), dir.path(kIndex)}) {
    const auto model = Model::open(path);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->path(), path);
    EXPECT_THAT(model->warnings(), IsEmpty());
    ASSERT_EQ(model->files().size(), 2);
    EXPECT_EQ(model->files()[0].path, dir.path(kFirst));
    EXPECT_EQ(model->files()[1].path, dir.path(kSecond));
    EXPECT_EQ(model->file_size(), model->files()[0].size + model->files()[1].size);
    ASSERT_EQ(model->tensors().size(), 3);
    EXPECT_EQ(model->parameter_count(), 3);
    EXPECT_EQ(model->data_bytes(), 3);
    EXPECT_EQ(model->find("b")->file, 0);
    EXPECT_EQ(model->find("c")->file, 1);
    EXPECT_EQ(to_text(model->view("b")->bytes), "B");
    EXPECT_EQ(to_text(model->read("c")->bytes()), "C");
  }
}

TEST(ModelDirectory, MetadataIsMergedAndTheFirstFileWins) {
  const TempDir dir;
  write_sharded(dir);
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->metadata(), ElementsAre(Pair("extra", "x"), Pair("format", "pt"), Pair("n", "1")));
  EXPECT_THAT(model->files()[1].metadata, ElementsAre(Pair("extra", "x"), Pair("n", "2")));
}

TEST(ModelDirectory, ShardsWithoutAnIndexAreFound) {
  const TempDir dir;
  write_sharded(dir);
  std::filesystem::remove(dir.path(kIndex));
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 3);
}

TEST(ModelDirectory, StraySingleFileDoesNotHideShards) {
  const TempDir dir;
  write_sharded(dir);
  dir.write("model.safetensors", safetensors_of({"stray"}));
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->has("stray"));
  EXPECT_THAT(model->warnings(),
              ElementsAre(dir.path("model.safetensors") + " is ignored because model.safetensors.index.json is used"));
}

TEST(ModelDirectory, ErrorNamesAMissingShard) {
  const TempDir dir;
  write_sharded(dir);
  std::filesystem::remove(dir.path(kSecond));
  EXPECT_TRUE(fails(Model::open(dir.path()), Errc::kNotFound,
                    fmt::format("{}: shard '{}' is missing; download it", dir.path(kIndex), kSecond)));
}

TEST(ModelDirectory, ErrorNamesATensorThatItsShardLacks) {
  const TempDir dir;
  write_sharded(dir);
  dir.write(kIndex, index_of({{"a", kFirst}, {"ghost", kSecond}}));
  EXPECT_TRUE(
      fails(Model::open(dir.path()), Errc::kCorrupt,
            fmt::format("{}: tensor 'ghost' should be in {}, but no shard of the index contains it", dir.path(kIndex), kSecond)));
}

TEST(ModelDirectory, ErrorNamesATensorInTwoShards) {
  const TempDir dir;
  write_sharded(dir);
  dir.write(kSecond, safetensors_of({"c", "a"}));
  EXPECT_TRUE(
      fails(Model::open(dir.path()), Errc::kCorrupt, fmt::format("{}: tensor 'a' is also in {}", dir.path(kSecond), kFirst)));
}

TEST(ModelDirectory, ShardsOutsideTheFolderAreNotOpened) {
  const TempDir dir;
  const std::string outside = dir.write("secret.safetensors", safetensors_of({"a"}));
  dir.write(fmt::format("m/{}", kIndex), index_of({{"a", "../secret.safetensors"}}));
  EXPECT_TRUE(fails(
      Model::open(dir.path("m")), Errc::kCorrupt,
      dir.path(fmt::format("m/{}", kIndex)) + ": shard '../secret.safetensors' of tensor 'a' is outside the model directory"));
  dir.write(fmt::format("m/{}", kIndex), index_of({{"a", outside}}));
  EXPECT_TRUE(fails(Model::open(dir.path("m")), Errc::kCorrupt,
                    fmt::format("{}: shard '{}' of tensor 'a' is outside the model directory",
                                dir.path(fmt::format("m/{}", kIndex)), outside)));
}

TEST(ModelDirectory, HarmlessProblemsOfTheIndexAreWarnings) {
  const TempDir dir;
  write_sharded(dir);
  dir.write(kSecond, safetensors_of({"c", "d"}));
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->warnings(), ElementsAre(fmt::format("{}: tensor 'd' of {} is not in the index", dir.path(kIndex), kSecond),
                                             dir.path(kIndex) + ": total_size is 3, but the shards have 4 bytes"));
}

TEST(ModelDirectory, ErrorNamesAnInvalidShard) {
  const TempDir dir;
  write_sharded(dir);
  dir.write(kSecond, "tiny");
  EXPECT_TRUE(fails(Model::open(dir.path()), Errc::kCorrupt,
                    dir.path(kSecond) + ": file of 4 bytes is too small for a SafeTensors header (at least 8 bytes)"));
}

TEST(ModelDirectory, ConfigIsReadBesideTheWeights) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  dir.write("config.json", R"({"model_type": "llama", "hidden_size": 8})");
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->config());
  EXPECT_EQ(model->config()->hidden_size, 8);
}

TEST(ModelDirectory, InvalidConfigIsAnError) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  dir.write("config.json", "[]");
  EXPECT_TRUE(fails(Model::open(dir.path()), Errc::kCorrupt, dir.path("config.json") + ": the root is not an object"));
  std::filesystem::remove(dir.path("config.json"));
  std::filesystem::create_directory(dir.path("config.json"));
  EXPECT_TRUE(fails(Model::open(dir.path()), Errc::kIo, dir.path("config.json") + ": not a regular file"));
}

TEST(LoadPretrained, OpensADirectoryWithAConfig) {
  const TempDir dir;
  write_sharded(dir);
  dir.write("config.json", "{}");
  const auto model = load_pretrained(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 3);
  EXPECT_TRUE(model->config());
}

TEST(LoadPretrained, NeedsAConfig) {
  const TempDir dir;
  write_sharded(dir);
  EXPECT_TRUE(fails(load_pretrained(dir.path()), Errc::kNotFound, dir.path() + ": no config.json"));
}

TEST(LoadPretrained, NeedsADirectory) {
  const TempDir dir;
  EXPECT_TRUE(fails(load_pretrained(dir.path("x\n")), Errc::kNotFound, dir.path("x\\n") + ": not a directory"));
  const std::string file = dir.write("model.safetensors", safetensors_of({"a"}));
  EXPECT_TRUE(fails(load_pretrained(file), Errc::kNotFound, file + ": not a directory"));
}

TEST(LoadPretrained, ErrorListsTheExpectedNames) {
  const TempDir dir;
  dir.write("config.json", "{}");
  EXPECT_TRUE(fails(load_pretrained(dir.path()), Errc::kNotFound,
                    dir.path() +
                        ": no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or "
                        "weights.mlx"));
}

TEST(LoadPretrained, UsesOnlyTheFourNamesInOrder) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("foo.safetensors", safetensors_of({"foo"}));
  EXPECT_FALSE(load_pretrained(dir.path()));
  dir.write("weights.safetensors", safetensors_of({"w"}));
  EXPECT_TRUE(load_pretrained(dir.path())->has("w"));
  dir.write("model-00001-of-00002.safetensors", "an interrupted download");
  dir.write("model.safetensors", safetensors_of({"m"}));
  const auto model = load_pretrained(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->has("m"));
  EXPECT_THAT(model->warnings(), ElementsAre(dir.path("weights.safetensors") + " is ignored because model.safetensors is used"));
}

TEST(LoadPretrained, MlxWeightsComeLast) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("weights.mlx", R"({"weights":{"x":{"shape":[1],"dtype":"int8","data":[3]}}})");
  const auto alone = load_pretrained(dir.path());
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->format(), Format::kMlxJson);
  EXPECT_TRUE(alone->has("x"));
  dir.write("weights.safetensors", safetensors_of({"w"}));
  const auto both = load_pretrained(dir.path());
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->format(), Format::kSafetensors);
  EXPECT_THAT(both->warnings(), ElementsAre(dir.path("weights.mlx") + " is ignored because weights.safetensors is used"));
}

}  // namespace
}  // namespace ballast
