#include "source/path/folder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;

TEST(Folder, IsListedOnce) {
  const TempDir dir;
  dir.write("b", "1");
  dir.write("a", "2");
  const auto folder = Folder::list(dir.path());
  ASSERT_TRUE(folder);
  dir.write("c", "3");
  const auto files = folder->files();
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ(files->front().name, "a");
  EXPECT_TRUE(*folder->has("b"));
  EXPECT_FALSE(*folder->has("c"));
}

TEST(Folder, UnlistedFolderChecksEachFile) {
  const TempDir dir;
  const Folder folder(dir.path());
  EXPECT_FALSE(*folder.has("a"));
  dir.write("a", "text");
  EXPECT_TRUE(*folder.has("a"));
  EXPECT_EQ(*folder.read_text("a"), "text");
  EXPECT_EQ(folder.files()->size(), 1U);
}

TEST(Folder, MissingFileHasNoText) {
  const TempDir dir;
  EXPECT_EQ(*Folder(dir.path()).read_text("a"), std::nullopt);
}

TEST(Folder, ErrorsNameTheFile) {
  const TempDir dir;
  std::filesystem::create_symlink("nowhere", dir.path("a"));
  EXPECT_TRUE(
      fails(Folder(dir.path()).read_text("a"), Errc::kNotFound, dir.path("a") + ": cannot open: No such file or directory"));
  EXPECT_TRUE(
      fails(Folder::list(dir.path("b")), Errc::kIo, dir.path("b") + ": cannot list the directory: No such file or directory"));
}

}  // namespace
}  // namespace ballast
