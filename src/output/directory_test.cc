#include "output/directory.h"

#include <map>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::fails;
using Tree = std::map<std::string, std::string>;

Tree tree(const std::string& folder) {
  Tree found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    found[entry.path().lexically_relative(folder).string()] = test::content(entry.path().string());
  }
  return found;
}

Result<void> write(const std::string& path, const std::vector<std::pair<std::string, std::string>>& files) {
  auto directory = OutputDirectory::create(path);
  if (!directory) return std::unexpected(directory.error());
  std::vector<OutputFile> outputs;
  for (const auto& [name, text] : files) {
    auto file = directory->add(name);
    if (!file) return std::unexpected(file.error());
    if (auto written = file->write_at(0, test::as_bytes(text)); !written) return written;
    outputs.push_back(std::move(*file));
  }
  return directory->commit(outputs, true);
}

TEST(OutputDirectory, AppearsInOneStep) {
  const test::TempDir dir;
  {
    const auto directory = OutputDirectory::create(dir.path("out/"));
    ASSERT_TRUE(directory) << directory.error().message;
    const auto file = directory->add("model.safetensors");
    ASSERT_TRUE(file);
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}, {"config.json", "c"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"}, {"out/config.json", "c"}}));
}

TEST(OutputDirectory, FillsADirectoryWithoutWeights) {
  const test::TempDir dir;
  dir.write("out/notes.txt", "n");
  dir.write("out/config.json", "old");
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}, {"config.json", "new"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"}, {"out/config.json", "new"}, {"out/notes.txt", "n"}}));
}

TEST(OutputDirectory, RemovesLeftoversOfDeadProcesses) {
  const test::TempDir dir;
  dir.write(".ballast-0123456789abcdef-out/model.safetensors", "dead");
  dir.write(".ballast-fedcba9876543210-out/model.safetensors", "alive");
  dir.write(".ballast-0123456789abcdef-other/model.safetensors", "of another");
  const int alive = ::open(dir.path(".ballast-fedcba9876543210-out").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(alive, LOCK_EX | LOCK_NB), 0);
  ASSERT_TRUE(OutputDirectory::create(dir.path("out")));
  EXPECT_EQ(tree(dir.path()), (Tree{{".ballast-fedcba9876543210-out/model.safetensors", "alive"},
                                    {".ballast-0123456789abcdef-other/model.safetensors", "of another"}}));
  ::close(alive);
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}}));
  EXPECT_EQ(tree(dir.path()),
            (Tree{{"out/model.safetensors", "w"}, {".ballast-0123456789abcdef-other/model.safetensors", "of another"}}));
}

TEST(OutputDirectory, ReplacesAPartlyFilledDirectory) {
  const test::TempDir dir;
  dir.write("out/notes.txt", "n");
  dir.write("out/model.safetensors", "half");
  dir.write("out/.incomplete/model-00002-of-00002.safetensors", "half");
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"}, {"out/notes.txt", "n"}}));
  EXPECT_FALSE(fs::exists(dir.path("out/.incomplete")));
}

TEST(OutputDirectory, ReplacesAModelAndKeepsTheRest) {
  const test::TempDir dir;
  dir.write("out/model-00001-of-00002.safetensors", "1");
  dir.write("out/model-00002-of-00002.safetensors", "2");
  dir.write("out/model.safetensors.index.json", "i");
  dir.write("out/weights.mlx", "m");
  dir.write("out/config.json", "old");
  dir.write("out/notes.txt", "n");
  dir.write("out/epoch1.safetensors", "e");
  fs::create_symlink("notes.txt", dir.path("out/link"));
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}, {"config.json", "new"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"},
                                    {"out/config.json", "new"},
                                    {"out/notes.txt", "n"},
                                    {"out/epoch1.safetensors", "e"},
                                    {"out/link", "n"}}));
  EXPECT_TRUE(fs::is_symlink(dir.path("out/link")));
}

TEST(OutputDirectory, OtherWeightsAreNotAModel) {
  const test::TempDir dir;
  dir.write("out/epoch1.safetensors", "e");
  dir.write("out/sub/file", "f");
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"}, {"out/epoch1.safetensors", "e"}, {"out/sub/file", "f"}}));
}

TEST(OutputDirectory, FoldersOfAReplacedModelStay) {
  const test::TempDir dir;
  dir.write("out/model.safetensors", "old");
  dir.write("out/sub/deep/file", "f");
  dir.write("out/sub/config.json", "old");
  dir.write("out/.cache/x", "c");
  ASSERT_TRUE(write(dir.path("out"), {{"model.safetensors", "w"}, {"sub/config.json", "new"}, {"other/a/b", "b"}}));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "w"},
                                    {"out/sub/deep/file", "f"},
                                    {"out/sub/config.json", "new"},
                                    {"out/other/a/b", "b"},
                                    {"out/.cache/x", "c"}}));
}

TEST(OutputDirectory, WritesFilesInFolders) {
  const test::TempDir dir;
  fs::create_directory(dir.path("filled"));
  for (const char* name : {"new", "filled"}) {
    ASSERT_TRUE(write(dir.path(name), {{"model.safetensors", "w"}, {"1_Pooling/config.json", "p"}}));
    EXPECT_EQ(tree(dir.path(name)), (Tree{{"model.safetensors", "w"}, {"1_Pooling/config.json", "p"}}));
  }
}

TEST(OutputDirectory, NeverWritesIntoTheCacheOfTheHub) {
  const test::TempDir dir;
  dir.write("models--o--m/blobs/b", "shared");
  dir.write("models--o--m/snapshots/c/sub/config.json", "{}");
  EXPECT_TRUE(fails(OutputDirectory::create(dir.path("models--o--m/snapshots/c")), Errc::kWrite,
                    dir.path("models--o--m/snapshots/c") +
                        ": cannot write: it is in the Hugging Face cache, which other programs "
                        "share; write to another path"));
  dir.write("out/notes.txt", "n");
  fs::create_directory_symlink("../models--o--m/snapshots/c/sub", dir.path("out/sub"));
  EXPECT_FALSE(write(dir.path("out"), {{"model.safetensors", "w"}, {"sub/config.json", "new"}}));
  EXPECT_EQ(test::content(dir.path("models--o--m/snapshots/c/sub/config.json")), "{}");
}

TEST(OutputDirectory, FillsNothingIfOneFileCannotBeReplaced) {
  const test::TempDir dir;
  dir.write("out/config.json/file", "f");
  EXPECT_TRUE(fails(write(dir.path("out"), {{"model.safetensors", "w"}, {"config.json", "c"}}), Errc::kWrite,
                    dir.path("out/config.json") + ": cannot write: it is a directory"));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/config.json/file", "f"}}));
}

TEST(OutputDirectory, FailureLeavesTheOldDirectory) {
  const test::TempDir dir;
  dir.write("out/model.safetensors", "old");
  EXPECT_TRUE(fails(write(dir.path("out"), {{"model.safetensors", "1"}, {"model.safetensors", "2"}}), Errc::kWrite,
                    dir.path("out/model.safetensors") + ": cannot move the file into place: File exists"));
  EXPECT_EQ(tree(dir.path()), (Tree{{"out/model.safetensors", "old"}}));
}

TEST(OutputDirectory, ErrorSaysWhatIsInTheWay) {
  const test::TempDir dir;
  dir.write("file", "f");
  EXPECT_TRUE(fails(OutputDirectory::create(dir.path("file")), Errc::kWrite,
                    dir.path("file") + ": cannot write: it exists and is not a directory; "
                                       "the name of a single file must end in .safetensors or .mlx"));
  fs::create_symlink("nowhere", dir.path("link"));
  EXPECT_TRUE(fails(OutputDirectory::create(dir.path("link")), Errc::kWrite,
                    dir.path("link") + ": cannot write: it is a broken symbolic link"));
  EXPECT_TRUE(fails(OutputDirectory::create(dir.path("none/out")), Errc::kWrite,
                    dir.path("none/out") + ": cannot write: No such file or directory; create its folder first"));
}

}  // namespace
}  // namespace ballast
