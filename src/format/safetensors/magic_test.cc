#include "format/safetensors/magic.h"

#include "format/safetensors/header.h"
#include "tests/support/files.h"

namespace ballast::safetensors {
namespace {

using test::as_bytes;
using test::fails;

TEST(Magic, KnownFormatsAreNamed) {
  using namespace std::string_view_literals;
  EXPECT_EQ(guess_format(as_bytes("version https://git-lfs.github.com/spec/v1\n")),
            "; this looks like a Git LFS pointer: run `git lfs pull` to download the file");
  EXPECT_EQ(guess_format(as_bytes("PK\3\4\0\0\b\b"sv)),
            "; this looks like a ZIP archive, such as torch.save() writes: save the weights as SafeTensors first");
  EXPECT_EQ(guess_format(as_bytes("GGUF\3\0\0\0"sv)),
            "; this looks like a GGUF file, which Ballast does not read: use the SafeTensors version of the model");
  EXPECT_EQ(guess_format(as_bytes("PAR1\x15\4\x15\xa0"sv)), "; this looks like a Parquet file: give the path of its directory");
  EXPECT_EQ(guess_format(as_bytes("\x93NUMPY\1\0"sv)), "; this looks like a NumPy array: save it as SafeTensors first");
  EXPECT_EQ(guess_format(as_bytes("\x89HDF\r\n\x1a\n"sv)),
            "; this looks like an HDF5 file: save the weights as SafeTensors first");
  EXPECT_EQ(guess_format(as_bytes("\x1f\x8b\b\0\0\0\0\0"sv)), "; this looks like a gzip file: decompress it first");
  for (const auto pickle : {"\x80\2}q\0(X\1"sv, "\x80\4\x95\x1f\0\0\0\0"sv, "\x80\5\x95\x1f\0\0\0\0"sv}) {
    EXPECT_EQ(guess_format(as_bytes(pickle)),
              "; this looks like a Python pickle, such as torch.save() writes: save the weights as SafeTensors first");
  }
  for (const auto page : {"<!DOCTYPE html>"sv, "<html>\n"sv, "<?xml version"sv}) {
    EXPECT_EQ(guess_format(as_bytes(page)),
              "; this looks like an HTML page, perhaps a server's error message: download the file again");
  }
  for (const auto json : {"{\n  \"error\": 1}"sv, "{}"sv, "{\"a\": 1}"sv}) {
    EXPECT_EQ(guess_format(as_bytes(json)), "; this looks like JSON: give the path of the weights or of their directory");
  }
}

TEST(Magic, HeaderLengthsAreNotMistakenForText) {
  using namespace std::string_view_literals;
  EXPECT_EQ(guess_format(as_bytes("\x3c\0\0\0\0\xff\xff\xff"sv)), "");
  EXPECT_EQ(guess_format(as_bytes("{\0\0\0\0\0\0\1"sv)), "");
}

TEST(Magic, UnknownFormatsGiveNoGuess) {
  EXPECT_EQ(guess_format({}), "");
  EXPECT_EQ(guess_format(as_bytes("P")), "");
  EXPECT_EQ(guess_format(as_bytes("hello, world")), "");
}

TEST(Magic, GuessIsAddedToTheError) {
  const std::string_view pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  EXPECT_TRUE(fails(parse_header(as_bytes(pointer), pointer.size()), Errc::kCorrupt,
                    "not a SafeTensors file; this looks like a Git LFS "
                    "pointer: run `git lfs pull` to download the file"));
  EXPECT_TRUE(fails(parse_header(as_bytes("{}"), 2), Errc::kCorrupt,
                    "file of 2 bytes is too small for a SafeTensors header (at least 8 bytes); this looks like JSON: give the "
                    "path of the weights or of their directory"));
}

}  // namespace
}  // namespace ballast::safetensors
