#include "source/sha256.h"

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;

TEST(Sha256, MatchesPublishedDigests) {
  EXPECT_EQ(sha256(*open_memory({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(*open_memory(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, HashesAcrossBlocks) {
  const std::string zeros((std::size_t{4} << 20) + 1, '\0');
  std::vector<std::uint64_t> blocks;
  const auto hash = sha256(*open_memory(as_bytes(zeros)), [&](std::uint64_t bytes) {
    blocks.push_back(bytes);
    return true;
  });
  EXPECT_EQ(hash, "95e441ca65cd41fa01b2a71799e79fd60db59ed34f13af32a91e85f90378676c");
  EXPECT_EQ(blocks, (std::vector<std::uint64_t>{std::uint64_t{4} << 20, 1}));
}

TEST(Sha256, CanBeCancelled) {
  const auto hash = sha256(*open_memory(as_bytes("abc")), [](std::uint64_t) { return false; });
  EXPECT_TRUE(fails(hash, Errc::kCancelled, "cancelled"));
}

TEST(Sha256, ReturnsReadErrors) {
  const test::TempDir dir;
  const std::string path = dir.write("f", "abc");
  const auto source = open_file(path, Access::kPread);
  ASSERT_TRUE(source) << source.error().message;
  std::filesystem::resize_file(path, 1);
  EXPECT_TRUE(fails(sha256(**source), Errc::kIo, "file was truncated while open: it has 1 bytes, it had 3"));
}

}  // namespace
}  // namespace ballast
