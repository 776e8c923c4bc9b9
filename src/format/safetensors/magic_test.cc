#include "format/safetensors/magic.h"

#include <gmock/gmock.h>

#include "format/safetensors/header.h"
#include "tests/support/files.h"

namespace ballast::safetensors {
namespace {

using test::as_bytes;
using test::fails;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n";

TEST(Magic, KnownFormatsAreNamed) {
  using namespace std::string_view_literals;
  EXPECT_EQ(guess_format(as_bytes("PAR1\x15\4\x15\xa0"sv)), "; this looks like a Parquet file: give the path of its directory");
  EXPECT_EQ(guess_format(as_bytes("\x1f\x8b\b\0\0\0\0\0"sv)), "; this looks like a gzip file: decompress it first");
  for (const auto page : {"<!DOCTYPE html>"sv, "<html>\n"sv, "<?xml version"sv}) {
    EXPECT_EQ(guess_format(as_bytes(page)),
              "; this looks like an HTML page, perhaps a server's error message: download the file again");
  }
  for (const auto json : {"{\n  \"error\": 1}"sv, "{}"sv, "{\"a\": 1}"sv}) {
    EXPECT_EQ(guess_format(as_bytes(json)), "; this looks like JSON: give the path of the weights or of their directory");
  }
}

TEST(Magic, FormatsOfOtherLibrariesComeWithACommand) {
  using namespace std::string_view_literals;
  EXPECT_EQ(guess_format(as_bytes("PK\3\4\0\0\b\b"sv), "a/pytorch_model.bin"),
            "; this looks like a ZIP archive, such as torch.save() writes; convert it: python3 -c \"import torch; "
            "from safetensors.torch import save_file; d = torch.load('a/pytorch_model.bin', map_location='cpu', "
            "weights_only=True); d = d.get('state_dict', d); save_file({k: v.contiguous().clone() for k, v in d.items()}, "
            "'a/model.safetensors')\"");
  for (const auto pickle : {"\x80\2}q\0(X\1"sv, "\x80\4\x95\x1f\0\0\0\0"sv, "\x80\5\x95\x1f\0\0\0\0"sv}) {
    EXPECT_THAT(
        guess_format(as_bytes(pickle), "x.pt"),
        StartsWith("; this looks like a Python pickle, such as torch.save() writes; convert it: python3 -c \"import torch;"));
  }
  EXPECT_THAT(guess_format(as_bytes("PK\3\4\0\0\b\b"sv), "v.jit"), HasSubstr("torch.jit.load('v.jit'"));
  EXPECT_THAT(guess_format(as_bytes("GGUF\3\0\0\0"sv), "m.gguf"), StartsWith("; this looks like a GGUF file; convert it: "));
  EXPECT_THAT(guess_format(as_bytes("\x93NUMPY\1\0"sv), "x.npy"), HasSubstr("numpy.load('x.npy')}, 'x.safetensors')"));
  EXPECT_THAT(guess_format(as_bytes("\x89HDF\r\n\x1a\n"sv), "x.h5"), HasSubstr("h5py.File('x.h5')"));
  const std::string zip = std::string("PK\3\4", 4) + std::string(22, '\0') + std::string("\5\0\0\0a.npy", 9);
  EXPECT_THAT(guess_format(as_bytes(zip), "x.npz"), HasSubstr("save_file(dict(numpy.load('x.npz')), 'x.safetensors')"));
}

TEST(Magic, FormatsWithoutAMarkAreKnownByTheirName) {
  EXPECT_THAT(guess_format(as_bytes("\x08\x07\x12\x07pytorch"), "m.onnx"),
              StartsWith("; this looks like an ONNX file; convert it"));
  EXPECT_EQ(guess_format(as_bytes("\x08\x07\x12\x07pytorch"), "m.bin"), "");
  for (const char* name : {"a.bin", "a.pt", "a.pth", "a.ckpt", "a.jit", "a.npz", "a.npy", "a.h5", "a.onnx", "a.gguf"}) {
    EXPECT_THAT(guess_by_name(name), HasSubstr(std::string("'") + name + "'"));
  }
  EXPECT_EQ(guess_by_name("a.json"), "");
}

TEST(Magic, UnsafeNamesAreNotPartOfACommand) {
  for (const char* name : {"a'; rm -rf x; '.bin", "a b.bin", "$(x).bin", "https://host/a.bin"}) {
    EXPECT_THAT(guess_by_name(name), HasSubstr("torch.load('FILE', ")) << name;
  }
}

TEST(Magic, GitLfsPointersNameTheSize) {
  EXPECT_EQ(guess_format(as_bytes(kPointer)),
            "; this is a Git LFS pointer: not downloaded, 1234 bytes; run `git lfs pull` in its repository");
  EXPECT_EQ(lfs_size(as_bytes(kPointer)), 1234U);
  EXPECT_EQ(guess_format(as_bytes("version https://git-lfs.github.com/spec/v1\n")),
            "; this is a Git LFS pointer: not downloaded; run `git lfs pull` in its repository");
  EXPECT_FALSE(lfs_size(as_bytes("size 12\n")));
  EXPECT_FALSE(lfs_size(as_bytes(std::string(kPointer) + std::string(1024, ' '))));
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
  EXPECT_TRUE(fails(parse_header(as_bytes(kPointer), kPointer.size()), Errc::kCorrupt,
                    "not a SafeTensors file; this is a Git LFS pointer: not downloaded, 1234 bytes; run `git lfs pull` in its "
                    "repository"));
  EXPECT_TRUE(fails(parse_header(as_bytes("{}"), 2), Errc::kCorrupt,
                    "file of 2 bytes is too small for a SafeTensors header (at least 8 bytes); this looks like JSON: give the "
                    "path of the weights or of their directory"));
}

}  // namespace
}  // namespace ballast::safetensors
