#include <ballast/tokens.h>

#include <gmock/gmock.h>

#include "format/npy/npy.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;
using ::testing::ElementsAre;

std::string int32s(const std::vector<std::int32_t>& values) { return test::to_text(std::as_bytes(std::span(values))); }

TEST(Tokens, NumbersInTextAreCutIntoWindows) {
  const TempDir dir;
  const auto tokens = read_tokens(dir.write("ids.txt", "1 2,3\n[4, 5]\t6\n7"), 3);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->length, 3U);
  EXPECT_EQ(tokens->count(), 2U);
  EXPECT_EQ(tokens->unused, 1U);
  EXPECT_THAT(tokens->ids, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Tokens, ShortTextIsOneWindow) {
  const auto tokens = cut_windows({5, 6, 7}, 512);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->length, 3U);
  EXPECT_EQ(tokens->count(), 1U);
  EXPECT_EQ(tokens->unused, 0U);
}

TEST(Tokens, RowsAreWindowsWhateverTheLength) {
  const TempDir dir;
  const std::string npy = npy_header(DType::kI32, std::vector<std::uint64_t>{2, 3}) + int32s({1, 2, 3, 4, 5, 6});
  const std::string file = test::safetensors({{"ids", DType::kI32, {2, 3}, int32s({1, 2, 3, 4, 5, 6})}});
  for (const std::string& path : {dir.write("ids.npy", npy), dir.write("ids.safetensors", file)}) {
    const auto tokens = read_tokens(path, 2);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(tokens->length, 3U);
    EXPECT_THAT(tokens->ids, ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Tokens, ArrayHasTheShapeOfItsIds) {
  const std::vector<std::uint64_t> shape{2, 3};
  const auto tokens = make_windows({1, 2, 3, 4, 5, 6}, shape, 2);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->count(), 2U);
  EXPECT_TRUE(fails(make_windows({1, 2, 3, 4}, shape, 2), Errc::kInvalidArgument, "<tokens>: 4 ids do not have shape [2, 3]"));
}

TEST(Tokens, SpreadWindowsAreFromAllOfTheText) {
  const auto tokens = spread_windows(*cut_windows({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 2), 2);
  EXPECT_THAT(tokens.ids, ElementsAre(0, 1, 4, 5));
}

TEST(Tokens, WhatIsNotTokenIdsIsRefused) {
  const TempDir dir;
  const auto refused = [&](std::string_view name, std::string_view content, Errc code, std::string_view message) {
    const std::string path = dir.write(name, content);
    return fails(read_tokens(path), code, path + ": " + std::string(message));
  };
  EXPECT_TRUE(refused("text.txt", "1 2\nHello world", Errc::kUnsupported,
                      "line 2: 'Hello' is not a token id; text must be tokenized first: use --text with the Python package"));
  EXPECT_TRUE(refused("rows.json", "[[1, 2], [3, 4]]", Errc::kUnsupported,
                      "line 1: more than one list; save ids in two dimensions as .npy or .safetensors"));
  EXPECT_TRUE(refused("one.txt", "7", Errc::kCorrupt, "1 tokens; at least 2 are needed"));
  EXPECT_TRUE(refused("empty.txt", "", Errc::kCorrupt, "0 tokens; at least 2 are needed"));
  EXPECT_TRUE(refused("floats.npy", npy_header(DType::kF32, std::vector<std::uint64_t>{2}) + std::string(8, '\0'),
                      Errc::kUnsupported, "dtype F32; token ids are integers"));
  EXPECT_TRUE(refused("negative.npy", npy_header(DType::kI32, std::vector<std::uint64_t>{2}) + int32s({3, -4}), Errc::kCorrupt,
                      "value 1 is -4, which is not a token id"));
  EXPECT_TRUE(refused("deep.npy", npy_header(DType::kI32, std::vector<std::uint64_t>{1, 1, 2}) + int32s({3, 4}),
                      Errc::kUnsupported, "shape [1, 1, 2]; token ids have one or two dimensions"));
  EXPECT_TRUE(refused("two.safetensors", test::safetensors({{"a", DType::kI32, {2}}, {"b", DType::kI32, {2}}}),
                      Errc::kUnsupported, "2 tensors; a file of token ids has one"));
  EXPECT_TRUE(fails(cut_windows({1, 2, 3}, 1), Errc::kInvalidArgument, "length is 1, it must be at least 2"));
}

}  // namespace
}  // namespace ballast
