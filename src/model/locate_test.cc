#include "model/locate.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;
using test::WithoutPrivilege;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string index_of(std::string_view shard) { return fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", shard); }

// Expects locate() to find exactly these files in `dir`.
void expect_files(const TempDir& dir, std::vector<std::string> files) {
  for (std::string& file : files) file = dir.path(file);
  const auto location = locate(dir.path());
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_EQ(location->files, files);
}

TEST(Locate, AnyOtherPathIsAFile) {
  const TempDir dir;
  dir.write("config.json", "{}");
  const auto location = locate(dir.path("x.bin"));
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("x.bin")));
  EXPECT_FALSE(location->folder);
  EXPECT_EQ(location->index_path, "");
}

TEST(Locate, IndexGivenByPathListsEachShardOnce) {
  const TempDir dir;
  dir.write("config.json", "{}");
  const std::string path =
      dir.write("x.index.json", R"({"weight_map":{"c":"b.safetensors","b":"sub/a.safetensors","a":"b.safetensors"}})");
  const auto location = locate(path);
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("b.safetensors"), dir.path("sub/a.safetensors")));
  EXPECT_EQ(location->index_path, path);
  EXPECT_EQ(location->folder->path() + "/", dir.path(""));
  ASSERT_TRUE(location->index);
  EXPECT_EQ(location->index->entries.size(), 3);
}

TEST(Locate, MissingIndexIsNotFound) {
  const TempDir dir;
  EXPECT_TRUE(fails(locate(dir.path("a.index.json")), Errc::kNotFound,
                    dir.path("a.index.json") + ": cannot open: No such file or directory"));
}

TEST(Locate, ErrorNamesAnInvalidIndexOnce) {
  const TempDir dir;
  dir.write(kIndex, "{}");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kCorrupt, dir.path(kIndex) + ": 'weight_map' is missing or not an object"));
  EXPECT_TRUE(fails(locate(dir.path(kIndex)), Errc::kCorrupt, dir.path(kIndex) + ": 'weight_map' is missing or not an object"));
}

TEST(Locate, IndexTakesPrecedenceWithAWarning) {
  const TempDir dir;
  dir.write(kIndex, index_of("s.safetensors"));
  for (const char* file : {"model.safetensors", "weights.safetensors", "weights.mlx", "model-00001-of-00001.safetensors"}) {
    dir.write(file, "");
  }
  const auto location = locate(dir.path());
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("s.safetensors")));
  EXPECT_EQ(location->index_path, dir.path(kIndex));
  EXPECT_THAT(
      location->warnings,
      ElementsAre(dir.path("model.safetensors") + " is ignored because model.safetensors.index.json is used",
                  dir.path("weights.safetensors") + " is ignored because model.safetensors.index.json is used",
                  dir.path("weights.mlx") + " is ignored because model.safetensors.index.json is used",
                  dir.path("model-00001-of-00001.safetensors") + " is ignored because model.safetensors.index.json is used"));
}

TEST(Locate, FileInTheIndexGivesNoWarning) {
  const TempDir dir;
  dir.write(kIndex, index_of("model.safetensors"));
  dir.write("model.safetensors", "");
  dir.write("config.json", "{}");
  for (const auto& find : {locate, locate_pretrained}) {
    const auto location = find(dir.path(), {});
    ASSERT_TRUE(location) << location.error().message;
    EXPECT_THAT(location->warnings, IsEmpty());
  }
}

TEST(Locate, IndexOfAnotherNameIsFoundIfItIsTheOnlyOne) {
  const TempDir dir;
  dir.write("diffusion_pytorch_model.safetensors.index.json", index_of("s.safetensors"));
  expect_files(dir, {"s.safetensors"});
}

TEST(Locate, StandardIndexTakesPrecedence) {
  const TempDir dir;
  dir.write("a.safetensors.index.json", index_of("a.safetensors"));
  dir.write(kIndex, index_of("m.safetensors"));
  expect_files(dir, {"m.safetensors"});
}

TEST(Locate, TwoNonstandardIndexesAreAnError) {
  const TempDir dir;
  dir.write("a.safetensors.index.json", index_of("a.safetensors"));
  dir.write("b.safetensors.index.json", index_of("b.safetensors"));
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kUnsupported,
                    dir.path() + ": several indexes, including 'a.safetensors.index.json' and 'b.safetensors.index.json'; give "
                                 "the path of the one to open"));
}

TEST(Locate, ShardsWithoutAnIndexTakePrecedenceOverASingleFile) {
  const TempDir dir;
  for (const char* file : {"m-00002-of-00002.safetensors", "m-00001-of-00002.safetensors", "model.safetensors"}) {
    dir.write(file, "");
  }
  const auto location = locate(dir.path());
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("m-00001-of-00002.safetensors"), dir.path("m-00002-of-00002.safetensors")));
  EXPECT_THAT(location->warnings, ElementsAre(dir.path("model.safetensors") + " is ignored because the set of shards is used"));
}

TEST(Locate, ErrorNamesTheMissingShardOfASet) {
  const TempDir dir;
  dir.write("m-00001-of-00003.safetensors", "");
  dir.write("m-00003-of-00003.safetensors", "");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kCorrupt,
                    dir.path() + ": shard 'm-00002-of-00003.safetensors' is missing (2 of 3 found); download it"));
}

TEST(Locate, TwoSetsOfShardsAreAnError) {
  const TempDir dir;
  dir.write("a-00001-of-00001.safetensors", "");
  dir.write("b-00001-of-00001.safetensors", "");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kCorrupt,
                    dir.path() + ": two sets of shards without an index: 'a-00001-of-00001.safetensors' and "
                                 "'b-00001-of-00001.safetensors'; move one set to another directory"));
}

TEST(Locate, SimilarNamesAreNotShards) {
  for (const char* file : {"m-00003-of-00002.safetensors", "m-00001-of-00000.safetensors", "m-00000-of-00000.safetensors",
                           "m-0000a-of-00002.safetensors", "m_00001-of-00002.safetensors", "m-00001-in-00002.safetensors",
                           "m--of-00002.safetensors", "m-00001-of-.safetensors"}) {
    const TempDir dir;
    dir.write(file, "");
    dir.write("model.safetensors", "");
    expect_files(dir, {"model.safetensors"});
  }
}

TEST(Locate, ShardsMayHaveAnyNumberOfDigitsAndStartAtZero) {
  const TempDir dir;
  dir.write("model-00001-of-000002.safetensors", "");
  dir.write("model.safetensors", "");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kCorrupt,
                    dir.path() + ": shard 'model-00002-of-000002.safetensors' is missing (1 of 2 found); download it"));
  dir.write("model-00002-of-000002.safetensors", "");
  expect_files(dir, {"model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"});
  const TempDir from_zero;
  from_zero.write("m-0-of-2.safetensors", "");
  from_zero.write("m-1-of-2.safetensors", "");
  expect_files(from_zero, {"m-0-of-2.safetensors", "m-1-of-2.safetensors"});
}

TEST(Locate, UrisAreNotMissingFiles) {
  const auto location = locate("https://host/m.safetensors?key=1");
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre("https://host/m.safetensors?key=1"));
  EXPECT_TRUE(fails(locate("hf://org"), Errc::kInvalidArgument,
                    "hf://org: not a valid model URI; expected hf://org/repo[@revision][/file]"));
}

TEST(Locate, ModelFileTakesPrecedenceOverWeightsFile) {
  const TempDir dir;
  dir.write("weights.safetensors", "");
  dir.write("other.safetensors", "");
  expect_files(dir, {"weights.safetensors"});
  dir.write("weights.mlx", "");
  dir.write("model.safetensors", "");
  const auto location = locate(dir.path());
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("model.safetensors")));
  EXPECT_THAT(location->warnings, ElementsAre(dir.path("weights.safetensors") + " is ignored because model.safetensors is used",
                                              dir.path("weights.mlx") + " is ignored because model.safetensors is used",
                                              dir.path("other.safetensors") + " is ignored because model.safetensors is used"));
}

TEST(Locate, MlxWeightsTakePrecedenceOverOtherNames) {
  const TempDir dir;
  dir.write("weights.mlx", "{}");
  dir.write("other.safetensors", "");
  expect_files(dir, {"weights.mlx"});
}

TEST(Locate, TheOnlyFileOfAnotherNameIsUsed) {
  const TempDir dir;
  dir.write("a.safetensors", "");
  dir.write("timeaware.safetensors", "");
  dir.write("readme.md", "");
  expect_files(dir, {"a.safetensors"});
}

TEST(Locate, UnrelatedFilesAreListedAndNotMerged) {
  const TempDir dir;
  dir.write("b.safetensors", "");
  dir.write("a.safetensors", "");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kUnsupported,
                    dir.path() + ": 2 weight files without an index, which may be different models: 'a.safetensors', "
                                 "'b.safetensors'; name one of them"));
}

TEST(Locate, ConsolidatedShardsAreOneModel) {
  const TempDir dir;
  dir.write("consolidated.00.safetensors", "");
  dir.write("consolidated.01.safetensors", "");
  expect_files(dir, {"consolidated.00.safetensors", "consolidated.01.safetensors"});
  dir.write("consolidated.03.safetensors", "");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kCorrupt,
                    dir.path() + ": shard 2 of consolidated.*.safetensors is missing before 'consolidated.03.safetensors'; "
                                 "download it"));
}

TEST(Locate, ModelTakesPrecedenceOverTheSameWeightsAsConsolidated) {
  const TempDir dir;
  dir.write("model-00001-of-00001.safetensors", "");
  dir.write("consolidated-00001-of-00002.safetensors", "");
  dir.write("consolidated-00002-of-00002.safetensors", "");
  const auto location = locate(dir.path());
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->files, ElementsAre(dir.path("model-00001-of-00001.safetensors")));
  EXPECT_THAT(location->warnings,
              ElementsAre(dir.path("consolidated-00001-of-00002.safetensors") + " and 1 more are ignored because the set of "
                                                                                "shards is used"));
}

TEST(Locate, AShardAloneIsOpenedWithAWarning) {
  const auto location = locate("m/model-00002-of-00003.safetensors");
  ASSERT_TRUE(location) << location.error().message;
  EXPECT_THAT(location->warnings, ElementsAre("model-00002-of-00003.safetensors is one of 3 shards; the others are not read"));
  EXPECT_THAT(locate("m/model-00001-of-00001.safetensors")->warnings, IsEmpty());
}

TEST(Locate, WeightsOfAnotherLibraryComeWithTheCommandThatConvertsThem) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("model.onnx", "");
  const auto location = locate(dir.path());
  ASSERT_FALSE(location);
  EXPECT_EQ(location.error().code, Errc::kNotFound);
  EXPECT_THAT(
      location.error().message,
      testing::StartsWith(dir.path() + ": no SafeTensors weights, but 'model.onnx'; this looks like an ONNX file; convert "
                                       "it: python3 -c "));
}

TEST(Locate, AFolderOfTheHubCacheNamesItsSnapshot) {
  const TempDir dir;
  dir.write("models--o--m/blobs/b", "");
  dir.write("models--o--m/snapshots/c1/model.safetensors", "");
  const std::string folder = dir.path("models--o--m");
  EXPECT_TRUE(fails(
      locate(folder), Errc::kNotFound,
      folder + ": this is a folder of the Hugging Face cache; give the path of the model in it, " + folder + "/snapshots/c1"));
}

TEST(Locate, ErrorForADirectoryWithoutWeightsListsTheExpectedNames) {
  const TempDir dir;
  dir.write("config.json", "{}");
  EXPECT_TRUE(fails(locate(dir.path()), Errc::kNotFound,
                    dir.path() +
                        ": no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or "
                        "weights.mlx"));
}

TEST(Locate, ErrorNamesTheDirectory) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("no"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const auto location = locate("no");
  std::filesystem::current_path(before);
  EXPECT_TRUE(fails(
      location, Errc::kNotFound,
      "no: no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or weights.mlx"));
}

TEST(Locate, PathsAreEscapedInMessages) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("\x1b[2J"));
  dir.write("\x1b[2J/a\n-00001-of-00002.safetensors", "");
  EXPECT_TRUE(
      fails(locate(dir.path("\x1b[2J")), Errc::kCorrupt,
            dir.path(R"(\x1b[2J)") + R"(: shard 'a\n-00002-of-00002.safetensors' is missing (1 of 2 found); download it)"));
}

TEST(Locate, UnreadableDirectoryIsAnIoError) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("d"));
  std::filesystem::permissions(dir.path("d"), std::filesystem::perms::none);
  const WithoutPrivilege unprivileged;
  if (!unprivileged.effective()) GTEST_SKIP() << "running as root, which can read every file, and cannot switch to another user";
  EXPECT_TRUE(fails(locate(dir.path("d")), Errc::kIo, dir.path("d") + ": cannot list the directory: Permission denied"));
}

TEST(ReadText, ReadsAWholeFile) {
  const TempDir dir;
  EXPECT_EQ(read_text(dir.write("f", "a\nb")), "a\nb");
  EXPECT_EQ(read_text(dir.write("g", "")), "");
}

TEST(ReadText, HugeFilesAreRefused) {
  const TempDir dir;
  const std::string path = dir.write("f", "");
  std::filesystem::resize_file(path, 100'000'001);
  EXPECT_TRUE(fails(read_text(path), Errc::kCorrupt, "file of 100000001 bytes exceeds the limit of 100000000 bytes"));
}

}  // namespace
}  // namespace ballast
