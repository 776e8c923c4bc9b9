#include "output/file.h"

#include <array>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::content;
using test::fails;

std::size_t entries(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

mode_t mode(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777U : 0;
}

TEST(OutputFile, IsInvisibleBeforeItIsPublished) {
  const test::TempDir dir;
  auto file = OutputFile::create(dir.path("out"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->reserve(10));
  ASSERT_TRUE(file->write_at(5, as_bytes("67890")));
  ASSERT_TRUE(file->write_at(0, as_bytes("12345")));
  EXPECT_FALSE(fs::exists(dir.path("out")));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->publish());
  EXPECT_EQ(content(dir.path("out")), "1234567890");
  EXPECT_EQ(entries(dir.path()), 1U);
}

TEST(OutputFile, LeavesNothingIfItIsNotPublished) {
  const test::TempDir dir;
  dir.write("out", "old");
  {
    auto file = OutputFile::create(dir.path("out"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write_at(0, as_bytes("new")));
    const OutputFile moved = std::move(*file);
  }
  EXPECT_EQ(content(dir.path("out")), "old");
  EXPECT_EQ(entries(dir.path()), 1U);
}

TEST(OutputFile, LastOfManyConcurrentWritersWins) {
  const test::TempDir dir;
  for (int round = 0; round < 100; ++round) {
    const std::string path = dir.path(fmt::format("out{}", round));
    std::array<std::string, 4> errors;
    std::latch start(errors.size());
    {
      std::vector<std::jthread> threads;
      for (std::string& error : errors) {
        threads.emplace_back([&] {
          auto file = OutputFile::create(path);
          start.arrive_and_wait();
          const auto published = file ? file->publish() : std::unexpected(file.error());
          if (!published) error = published.error().message;
        });
      }
    }
    EXPECT_THAT(errors, testing::Each("")) << round;
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_EQ(entries(dir.path()), 100U);
}

TEST(OutputFile, ReplacesAFileAndKeepsItsMode) {
  const test::TempDir dir;
  dir.write("out", "something longer");
  fs::permissions(dir.path("out"), fs::perms{0600});
  auto file = OutputFile::create(dir.path("out"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write_at(0, as_bytes("new")));
  ASSERT_TRUE(file->publish());
  EXPECT_EQ(content(dir.path("out")), "new");
  EXPECT_EQ(mode(dir.path("out")), 0600U);
  EXPECT_EQ(entries(dir.path()), 1U);
}

TEST(OutputFile, RespectsTheUmask) {
  const test::TempDir dir;
  const mode_t before = ::umask(027);
  auto file = OutputFile::create(dir.path("out"));
  ::umask(before);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->publish());
  EXPECT_EQ(mode(dir.path("out")), 0640U);
}

TEST(OutputFile, WritesToTheTargetOfALink) {
  const test::TempDir dir;
  const std::string real = dir.write("real/file", "old");
  fs::create_directory(dir.path("links"));
  fs::create_symlink("../real/file", dir.path("links/out"));
  auto file = OutputFile::create(dir.path("links/out"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write_at(0, as_bytes("new")));
  ASSERT_TRUE(file->publish());
  EXPECT_TRUE(fs::is_symlink(dir.path("links/out")));
  EXPECT_EQ(content(real), "new");
}

TEST(OutputFile, NeverWritesIntoTheCacheOfTheHub) {
  const test::TempDir dir;
  const std::string blob = dir.write("models--o--m/blobs/b", "shared");
  dir.write("models--o--m/snapshots/c/config.json", "{}");
  const std::string link = dir.path("models--o--m/snapshots/c/model.safetensors");
  fs::create_symlink("../../blobs/b", link);
  fs::create_symlink("models--o--m/blobs/b", dir.path("link"));
  for (const std::string& path : {link, blob, dir.path("link"), dir.path("models--o--m/snapshots/c/new")}) {
    EXPECT_TRUE(
        fails(OutputFile::create(path), Errc::kWrite,
              path + ": cannot write: it is in the Hugging Face cache, which other programs share; write to another path"));
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(content(blob), "shared");
}

TEST(OutputFile, CopiesFromAFileAndFromMemory) {
  const test::TempDir dir;
  std::string bytes(3'000'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  const auto from_file = open_file(dir.write("in", bytes), Access::kPread);
  ASSERT_TRUE(from_file);
  const auto from_memory = open_memory(as_bytes(bytes));
  auto file = OutputFile::create(dir.path("out"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->copy_from(**from_file, 100, 0, 2'000'000));
  ASSERT_TRUE(file->copy_from(*from_memory, 1, 2'000'000, 2'999'999));
  ASSERT_TRUE(file->publish());
  EXPECT_EQ(content(dir.path("out")), bytes.substr(100, 2'000'000) + bytes.substr(1));
  EXPECT_TRUE(fails(file->copy_from(**from_file, 2'999'999, 0, 2), Errc::kIo,
                    "cannot read 1 bytes at offset 3000000: the size is 3000000 bytes"));
}

TEST(OutputFile, ErrorSaysWhatIsInTheWay) {
  const test::TempDir dir;
  fs::create_directory(dir.path("folder"));
  EXPECT_TRUE(
      fails(OutputFile::create(dir.path("folder")), Errc::kWrite, dir.path("folder") + ": cannot write: it is a directory"));
  EXPECT_TRUE(fails(OutputFile::create(dir.path("none/out")), Errc::kWrite,
                    dir.path("none/out") + ": cannot write: No such file or directory; create its folder first"));
  EXPECT_TRUE(fails(OutputFile::create("/dev/null"), Errc::kWrite, "/dev/null: cannot write: not a regular file"));
  EXPECT_TRUE(
      fails(OutputFile::create(std::string("a\0b", 3)), Errc::kWrite, "a\\x00b: cannot write: the path contains a NUL byte"));
}

TEST(OutputFile, ReportsALackOfSpace) {
  const test::TempDir dir;
  auto file = OutputFile::create(dir.path("out"));
  ASSERT_TRUE(file);
  const auto reserved = file->reserve(std::uint64_t{1} << 60);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, Errc::kWrite);
  EXPECT_TRUE(reserved.error().message.starts_with(dir.path("out") + ": cannot allocate 1152921504606846976 bytes: "));
}

}  // namespace
}  // namespace ballast
