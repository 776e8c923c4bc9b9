#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "source/source.h"
#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;
using test::to_text;
using test::WithoutPrivilege;

Result<std::string> read(const Source& source, std::uint64_t offset, std::size_t length) {
  std::string out(length, '\0');
  if (auto done = source.read_at(offset, std::as_writable_bytes(std::span(out))); !done) return std::unexpected(done.error());
  return out;
}

TEST(FileSource, ReadsAndMapsTheSameBytes) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", "0123456789"), Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 10);
  EXPECT_EQ(read(**source, 0, 10), "0123456789");
  EXPECT_EQ(read(**source, 3, 4), "3456");
  EXPECT_EQ(read(**source, 10, 0), "");
  const auto map = (*source)->map();
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(to_text(*map), "0123456789");
  EXPECT_EQ((*source)->map()->data(), map->data());
}

TEST(FileSource, WritesToAWritableMapDoNotChangeTheFile) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", "0123456789"), Access::kMmap, MapMode::kCopyOnWrite);
  ASSERT_TRUE(source) << source.error().message;
  const auto map = (*source)->map();
  ASSERT_TRUE(map) << map.error().message;
  const_cast<std::byte&>(map->front()) = std::byte{'x'};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  EXPECT_EQ(to_text(*map), "x123456789");
  EXPECT_EQ(read(**source, 0, 10), "0123456789");
  const auto again = open_file(dir.path("f"), Access::kMmap);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_text(*(*again)->map()), "0123456789");
}

TEST(FileSource, EmptyFileHasAnEmptyMap) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", ""), Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 0);
  const auto map = (*source)->map();
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_TRUE(map->empty());
}

TEST(FileSource, ReadsPastTheEndAreRefused) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", "0123456789"), Access::kAuto);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_TRUE(fails(read(**source, 8, 3), Errc::kIo, "cannot read 3 bytes at offset 8: the size is 10 bytes"));
  EXPECT_TRUE(fails(read(**source, 11, 0), Errc::kIo, "cannot read 0 bytes at offset 11: the size is 10 bytes"));
  EXPECT_TRUE(fails(read(**source, UINT64_MAX, 1), Errc::kIo,
                    "cannot read 1 bytes at offset 18446744073709551615: the size is 10 bytes"));
}

TEST(FileSource, PreadAccessHasNoViews) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", "abc"), Access::kPread);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(read(**source, 0, 3), "abc");
  EXPECT_TRUE(
      fails((*source)->map(), Errc::kUnsupported,
            "view() is not available because the file is not memory-mapped (pread access or a network filesystem); use read()"));
  EXPECT_TRUE((*source)->release(0, 3));
}

TEST(FileSource, ReleasedPagesAreReadAgain) {
  const TempDir dir;
  const std::string content(100'000, 'x');
  const auto source = open_file(dir.write("f", content), Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_TRUE((*source)->release(0, content.size()));
  const auto map = (*source)->map();
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(to_text(*map), content);
  ASSERT_TRUE((*source)->release(1, content.size() - 2));
  ASSERT_TRUE((*source)->release(5, 10));
  EXPECT_EQ(to_text(*map), content);
}

TEST(FileSource, TruncationWhileOpenIsAnErrorWithBothSizes) {
  const TempDir dir;
  const std::string path = dir.write("f", std::string(10'000, 'x'));
  const auto source = open_file(path, Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_TRUE((*source)->map());
  std::filesystem::resize_file(path, 100);
  EXPECT_TRUE(fails(read(**source, 0, 10'000), Errc::kIo, "file was truncated while open: it has 100 bytes, it had 10000"));
  EXPECT_TRUE(fails(read(**source, 5'000, 10), Errc::kIo, "file was truncated while open: it has 100 bytes, it had 10000"));
  EXPECT_TRUE(fails((*source)->map(), Errc::kIo, "file was truncated while open: it has 100 bytes, it had 10000"));
  EXPECT_EQ(read(**source, 90, 10), "xxxxxxxxxx");
}

TEST(FileSource, GrowthWhileOpenIsNotSeen) {
  const TempDir dir;
  const std::string path = dir.write("f", "abc");
  const auto source = open_file(path, Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  dir.write("f", "abcdef");
  EXPECT_EQ((*source)->size(), 3);
  EXPECT_EQ(to_text(*(*source)->map()), "abc");
}

TEST(FileSource, SurvivesUnlinkingTheFile) {
  const TempDir dir;
  const std::string path = dir.write("f", "abc");
  const auto source = open_file(path, Access::kMmap);
  ASSERT_TRUE(source) << source.error().message;
  std::filesystem::remove(path);
  EXPECT_EQ(read(**source, 0, 3), "abc");
}

// Writes a file and drops its pages from the page cache.
std::string write_uncached(const TempDir& dir, std::string_view content) {
  std::string path = dir.write("f", content);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(::fdatasync(fd), 0);
  EXPECT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(fd);
  return path;
}

TEST(FileSource, DirectReadsGiveTheSameBytesFromAnyOffset) {
  const TempDir dir;
  std::string content(50'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2'654'435'761U >> 13);
  const auto source = open_file(write_uncached(dir, content), Access::kAuto);
  ASSERT_TRUE(source) << source.error().message;
  const Bytes memory(allocate_bytes(content.size() + 8192, 4096));
  for (const std::size_t offset : {0, 1, 64, 4095, 4096, 4100, 40'000}) {
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{10}, std::size_t{4096}, std::size_t{9'000}, content.size() - offset}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        const std::span out(memory.get() + offset % 4096 + shift, length);
        ASSERT_TRUE((*source)->read_direct(offset, out));
        EXPECT_EQ(to_text(out), content.substr(offset, length)) << offset << " " << length << " " << shift;
      }
    }
  }
}

TEST(FileSource, DirectReadsPastTheEndAreRefused) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", std::string(10'000, 'x')), Access::kAuto);
  ASSERT_TRUE(source) << source.error().message;
  const Bytes memory(allocate_bytes(20'000, 4096));
  EXPECT_TRUE(fails((*source)->read_direct(0, {memory.get(), 20'000}), Errc::kIo,
                    "cannot read 20000 bytes at offset 0: the size is 10000 bytes"));
}

TEST(FileSource, DirectReadsBypassThePageCache) {
  const TempDir dir;
  const std::string content(16 << 20, 'x');
  const auto source = open_file(write_uncached(dir, content), Access::kAuto);
  ASSERT_TRUE(source) << source.error().message;
  if ((*source)->cached_share() > 0.1) GTEST_SKIP() << "this filesystem cannot drop cached pages or report them";
  const Bytes memory(allocate_bytes(content.size(), 4096));
  const std::span out(memory.get(), content.size());
  ASSERT_TRUE((*source)->read_direct(0, out));
  EXPECT_EQ(to_text(out), content);
  EXPECT_LT((*source)->cached_share(), 0.5);
  ASSERT_TRUE((*source)->read_at(0, out));
  EXPECT_EQ((*source)->cached_share(), 1);
}

TEST(FileSource, EmptyFileCountsAsCached) {
  const TempDir dir;
  const auto source = open_file(dir.write("f", ""), Access::kAuto);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->cached_share(), 1);
}

TEST(FileSource, MissingFileIsNotFound) {
  const TempDir dir;
  EXPECT_TRUE(fails(open_file(dir.path("f"), Access::kAuto), Errc::kNotFound, "cannot open: No such file or directory"));
}

TEST(FileSource, PathThroughAFileIsNotFound) {
  const TempDir dir;
  dir.write("f", "");
  EXPECT_TRUE(fails(open_file(dir.path("f/g"), Access::kAuto), Errc::kNotFound, "cannot open: Not a directory"));
}

TEST(FileSource, ErrorsHaveTheErrno) {
  const TempDir dir;
  const auto source = open_file(dir.path("f"), Access::kAuto);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().system_error, ENOENT);
  EXPECT_EQ(Error(source.error()).at("f").system_error, ENOENT);
}

TEST(FileSource, DirectoryIsNotAFile) {
  const TempDir dir;
  EXPECT_TRUE(fails(open_file(dir.path(), Access::kAuto), Errc::kIo, "not a regular file"));
}

TEST(FileSource, FifoIsRefusedWithoutWaitingForAWriter) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.path("fifo").c_str(), 0644), 0);
  EXPECT_TRUE(fails(open_file(dir.path("fifo"), Access::kAuto), Errc::kIo, "not a regular file"));
}

TEST(FileSource, PathWithANulByteIsRefused) {
  const TempDir dir;
  const std::string path = dir.write("f", "abc");
  EXPECT_TRUE(fails(open_file(path + std::string("\0.safetensors", 13), Access::kAuto), Errc::kInvalidArgument,
                    "cannot open: the path contains a NUL byte"));
}

TEST(FileSource, UnreadableFileIsNotReportedAsMissing) {
  const TempDir dir;
  const std::string path = dir.write("f", "abc");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const WithoutPrivilege unprivileged;
  if (!unprivileged.effective()) GTEST_SKIP() << "running as root, which can read every file, and cannot switch to another user";
  EXPECT_TRUE(fails(open_file(path, Access::kAuto), Errc::kIo, "cannot open: Permission denied"));
}

}  // namespace
}  // namespace ballast
