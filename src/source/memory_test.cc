#include "source/source.h"
#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;

TEST(MemorySource, ReadsWithoutCopyingTheBytes) {
  const std::string text = "0123456789";
  const auto source = open_memory(as_bytes(text));
  EXPECT_EQ(source->size(), 10);
  std::string out(4, '\0');
  ASSERT_TRUE(source->read_at(3, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "3456");
  const auto map = source->map();
  ASSERT_TRUE(map);
  EXPECT_EQ(map->data(), as_bytes(text).data());
  EXPECT_TRUE(source->release(0, 10));
}

TEST(MemorySource, ReadsPastTheEndAreRefused) {
  const auto source = open_memory(as_bytes("0123456789"));
  std::string out(4, '\0');
  const auto space = std::as_writable_bytes(std::span(out));
  EXPECT_TRUE(fails(source->read_at(7, space), Errc::kIo, "cannot read 4 bytes at offset 7: the size is 10 bytes"));
  EXPECT_TRUE(fails(source->read_at(UINT64_MAX, space), Errc::kIo,
                    "cannot read 4 bytes at offset 18446744073709551615: the size is 10 bytes"));
}

TEST(MemorySource, MayBeEmpty) {
  const auto source = open_memory({});
  EXPECT_EQ(source->size(), 0);
  EXPECT_TRUE(source->read_at(0, {}));
}

TEST(PiecesSource, ReadsAcrossPieces) {
  const auto source = open_pieces("head", {as_bytes("ab"), {}, as_bytes("cdef")});
  ASSERT_EQ(source->size(), 10);
  for (std::uint64_t begin = 0; begin <= 10; ++begin) {
    for (std::uint64_t end = begin; end <= 10; ++end) {
      std::string out(end - begin, '\0');
      ASSERT_TRUE(source->read_at(begin, std::as_writable_bytes(std::span(out))));
      EXPECT_EQ(out, std::string("headabcdef").substr(begin, end - begin));
    }
  }
  std::string out(4, '\0');
  EXPECT_TRUE(fails(source->read_at(7, std::as_writable_bytes(std::span(out))), Errc::kIo,
                    "cannot read 4 bytes at offset 7: the size is 10 bytes"));
  EXPECT_FALSE(source->map());
}

}  // namespace
}  // namespace ballast
