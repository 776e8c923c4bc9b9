#include "output/tree.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

using test::fails;
using test::TempDir;
using ::testing::HasSubstr;

void write(const std::string& path, std::string_view text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(OutputTree, AppearsWhole) {
  const TempDir dir;
  auto tree = OutputTree::create(dir.path("out"), false);
  ASSERT_TRUE(tree) << tree.error().message;
  write(tree->path() + "/a/x", "1");
  write(tree->path() + "/stale", "2");
  EXPECT_FALSE(fs::exists(dir.path("out")));
  ASSERT_TRUE(tree->commit({"a"}, false));
  EXPECT_EQ(test::content(dir.path("out/a/x")), "1");
  EXPECT_FALSE(fs::exists(dir.path("out/stale")));
}

TEST(OutputTree, ReplacesADirectory) {
  const TempDir dir;
  write(dir.path("out/a/old"), "0");
  auto tree = OutputTree::create(dir.path("out"), false);
  ASSERT_TRUE(tree) << tree.error().message;
  write(tree->path() + "/a/new", "1");
  ASSERT_TRUE(tree->commit({"a"}, false));
  EXPECT_TRUE(fs::exists(dir.path("out/a/new")));
  EXPECT_FALSE(fs::exists(dir.path("out/a/old")));
}

TEST(OutputTree, LeavesNothingWithoutCommit) {
  const TempDir dir;
  std::string staging;
  {
    auto tree = OutputTree::create(dir.path("out"), false);
    ASSERT_TRUE(tree) << tree.error().message;
    staging = tree->path();
    write(staging + "/a/x", "1");
  }
  EXPECT_FALSE(fs::exists(staging));
}

TEST(OutputTree, ResumableContentStays) {
  const TempDir dir;
  {
    auto tree = OutputTree::create(dir.path("out"), true);
    ASSERT_TRUE(tree) << tree.error().message;
    EXPECT_TRUE(fails(OutputTree::create(dir.path("out"), true), Errc::kWrite,
                      tree->path() + ": another process is writing to it; wait for it to finish"));
    write(tree->path() + "/a/x", "1");
  }
  EXPECT_EQ(test::content(dir.path("out.incomplete/a/x")), "1");
  auto again = OutputTree::create(dir.path("out"), true);
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_TRUE(again->commit({"a"}, false));
  EXPECT_TRUE(fs::exists(dir.path("out/a/x")));
  EXPECT_FALSE(fs::exists(dir.path("out.incomplete")));
}

TEST(OutputTree, ErrorsNameTheFinalPath) {
  const TempDir dir;
  auto tree = OutputTree::create(dir.path("out"), false);
  ASSERT_TRUE(tree) << tree.error().message;
  const Error error{.code = Errc::kWrite, .message = tree->path() + "/a/x: cannot write"};
  EXPECT_EQ(tree->with_final_path(error).message, tree->final_path(tree->path() + "/a/x") + ": cannot write");
  EXPECT_THAT(tree->final_path(tree->path() + "/a"), HasSubstr("/out/a"));
  EXPECT_EQ(tree->final_path("/elsewhere"), "/elsewhere");
}

TEST(OutputTree, FileInTheWayIsRefused) {
  const TempDir dir;
  dir.write("out", "");
  EXPECT_TRUE(fails(OutputTree::create(dir.path("out"), false), Errc::kWrite,
                    dir.path("out") + ": cannot write: it exists and is not a directory"));
}

}  // namespace
}  // namespace ballast
