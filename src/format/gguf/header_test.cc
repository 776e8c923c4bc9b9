#include "format/gguf/header.h"

#include <limits>

#include <gmock/gmock.h>

#include "tests/support/files.h"
#include "tests/support/gguf_file.h"

namespace ballast::gguf {
namespace {

using test::as_bytes;
using test::fails;
using test::gguf_string;
using test::GgufFile;
using test::raw;
using ::testing::ElementsAre;
using ::testing::Optional;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4_0 = 2;
constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

// Parses the file, and expects that each of its prefixes asks for more or has the same error.
Result<Table> parse(std::string_view file) {
  auto whole = parse_table(as_bytes(file), file.size());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto part = parse_table(as_bytes(file.substr(0, size)), file.size());
    if (!part) {
      EXPECT_TRUE(fails(whole, part.error().code, part.error().message)) << "in the first " << size << " bytes";
    } else if (*part) {
      EXPECT_TRUE(whole && (*part)->data_start == (*whole)->data_start);
    }
  }
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return std::unexpected(Error{.code = Errc::kCorrupt, .message = "wants more than the file"});
  return **std::move(whole);
}

std::string file_with(std::string_view value) { return GgufFile().key("k", value).bytes(); }

TEST(GgufHeader, FileWithoutAnythingIsRead) {
  const std::string file("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  const auto table = parse(file);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->version, 3);
  EXPECT_EQ(table->alignment, 32);
  EXPECT_TRUE(table->metadata.empty());
  EXPECT_TRUE(table->tensors.empty());
}

TEST(GgufHeader, TensorsAndMetadataAreRead) {
  const std::string file = GgufFile(2)
                               .text("general.architecture", "llama")
                               .key("llama.block_count", 30)
                               .key("llama.rope.freq_base", raw({std::uint32_t{6}}) + raw({0.5F}))
                               .texts("tokenizer.ggml.tokens", {"a", "", "bc"})
                               .tensor("a.weight", {64, 3}, kQ4_0, std::string(108, 'x'))
                               .tensor("b", {2}, kF32, std::string(8, 'y'))
                               .bytes();
  const auto table = parse(file);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->version, 2);
  EXPECT_EQ(table->find("general.architecture")->as_string(), "llama");
  EXPECT_EQ(table->find("llama.block_count")->as_unsigned(), 30);
  EXPECT_EQ(table->find("llama.block_count")->as_float(), std::nullopt);
  EXPECT_EQ(table->find("llama.rope.freq_base")->as_float(), 0.5);
  EXPECT_THAT(table->find("tokenizer.ggml.tokens")->strings(), ElementsAre("a", "", "bc"));
  EXPECT_EQ(table->find("tokenizer.ggml.tokens")->as_string(), std::nullopt);
  EXPECT_EQ(table->find("none"), nullptr);
  ASSERT_EQ(table->tensors.size(), 2);
  EXPECT_EQ(table->tensors[0].name, "a.weight");
  EXPECT_THAT(table->tensors[0].shape, ElementsAre(3, 64));
  EXPECT_EQ(table->tensors[0].type->name, "Q4_0");
  EXPECT_EQ(table->tensors[0].end, 108);
  EXPECT_EQ(table->tensors[1].begin, 128);
  EXPECT_EQ(file.substr(table->data_start, 4), "xxxx");
}

TEST(GgufHeader, IntegersOfAllTypesAreRead) {
  const auto number = [](std::uint32_t type, std::string_view bytes) {
    const std::string file = file_with(raw({type}).append(bytes));
    const auto table = parse(file);
    return table ? table->find("k")->as_unsigned() : std::nullopt;
  };
  EXPECT_THAT(number(0, "\xff"), Optional(255));
  EXPECT_THAT(number(1, "\x7f"), Optional(127));
  EXPECT_EQ(number(1, "\xff"), std::nullopt);
  EXPECT_THAT(number(2, raw({std::uint16_t{65535}})), Optional(65535));
  EXPECT_THAT(number(3, raw({std::int16_t{7}})), Optional(7));
  EXPECT_THAT(number(5, raw({std::int32_t{7}})), Optional(7));
  EXPECT_THAT(number(10, raw({kHuge})), Optional(kHuge));
  EXPECT_EQ(number(11, raw({std::int64_t{-1}})), std::nullopt);
}

TEST(GgufHeader, AlignmentOfTheFileIsUsed) {
  const std::string file =
      GgufFile(3, 64).key("general.alignment", 64).tensor("a", {1}, kF32, "aaaa").tensor("b", {1}, kF32, "bbbb").bytes();
  const auto table = parse(file);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->data_start % 64, 0);
  EXPECT_EQ(table->tensors[1].begin, 64);
}

TEST(GgufHeader, LastTensorNeedsNoPadding) {
  std::string file = GgufFile().tensor("a", {1}, kF32, "aaaa").bytes();
  file.resize(file.size() - 28);
  EXPECT_TRUE(parse(file));
  file.resize(file.size() - 1);
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt,
                    "file is truncated: tensors need 4 bytes of data, the file has 3 (1 missing); download it again"));
}

TEST(GgufHeader, TensorWithoutValuesIsRead) {
  const std::string file = GgufFile().tensor("a", {32, 0}, kQ4_0, "").tensor("b", {}, kF32, "bbbb").bytes();
  const auto table = parse(file);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->tensors[0].end, 0);
  EXPECT_TRUE(table->tensors[1].shape.empty());
}

TEST(GgufHeader, OtherFilesAreRefused) {
  EXPECT_TRUE(fails(parse("not a model, but a text"), Errc::kCorrupt, "not a GGUF file: it does not begin with 'GGUF'"));
  EXPECT_TRUE(
      fails(parse(GgufFile(1).bytes()), Errc::kUnsupported, "GGUF version 1 is not supported; Ballast reads versions 2 and 3"));
  EXPECT_TRUE(
      fails(parse(GgufFile(3U << 24U).bytes()), Errc::kUnsupported, "big-endian GGUF is not supported; convert it with gguf-py"));
  EXPECT_TRUE(fails(parse("GGUF"), Errc::kCorrupt,
                    "4 bytes at byte 4, but the file has 4; it is damaged or truncated, download it again"));
}

TEST(GgufHeader, CountsThatTheFileIsTooShortForAreRefused) {
  GgufFile file;
  file.count_tensors = kHuge;
  EXPECT_TRUE(fails(parse(file.bytes()), Errc::kCorrupt,
                    "18446744073709551615 tensors need at least 25 bytes each, but only 0 bytes follow"));
  file.count_tensors = 0;
  file.count_keys = kHuge / 14;
  EXPECT_TRUE(fails(parse(file.bytes()), Errc::kCorrupt,
                    "1317624576693539401 metadata keys need at least 14 bytes each, but only 0 bytes follow"));
  EXPECT_TRUE(
      fails(parse(file_with(raw({std::uint32_t{9}, std::uint32_t{10}}) + raw({kHuge / 8 + 1}))), Errc::kCorrupt,
            "metadata key 1 of 1: 'k': 2305843009213693952 elements need at least 8 bytes each, but only 0 bytes follow"));
  EXPECT_TRUE(fails(parse(file_with(raw({std::uint32_t{8}}) + raw({kHuge}))), Errc::kCorrupt,
                    "metadata key 1 of 1: 'k': 18446744073709551615 bytes at byte 45, but the file has 45; it is damaged or "
                    "truncated, download it again"));
}

TEST(GgufHeader, ValuesThatAreNotUnderstoodAreRefused) {
  EXPECT_TRUE(fails(parse(file_with(raw({std::uint32_t{13}, std::uint32_t{0}}))), Errc::kCorrupt,
                    "metadata key 1 of 1: 'k': unknown value type 13"));
  EXPECT_TRUE(fails(parse(file_with(raw({std::uint32_t{9}, std::uint32_t{9}}) + raw({std::uint64_t{0}}))), Errc::kUnsupported,
                    "metadata key 1 of 1: 'k': arrays of arrays are not supported"));
  EXPECT_TRUE(fails(parse(file_with(raw({std::uint32_t{7}}) + "\2")), Errc::kCorrupt,
                    "metadata key 1 of 1: 'k': a bool is 2, expected 0 or 1"));
  EXPECT_TRUE(fails(parse(GgufFile().key("", 1).bytes()), Errc::kCorrupt, "metadata key 1 of 1: the key is empty"));
  EXPECT_TRUE(fails(parse(GgufFile().key("k", 1).key("k", 2).bytes()), Errc::kCorrupt, "metadata key 'k' is there twice"));
}

TEST(GgufHeader, AlignmentThatIsNoPowerOfTwoIsRefused) {
  EXPECT_TRUE(fails(parse(GgufFile().key("general.alignment", 0).bytes()), Errc::kCorrupt,
                    "'general.alignment' is 0, expected a power of two of at most 1048576"));
  EXPECT_TRUE(fails(parse(GgufFile().key("general.alignment", 1U << 31U).bytes()), Errc::kCorrupt,
                    "'general.alignment' is 2147483648, expected a power of two of at most 1048576"));
  EXPECT_TRUE(
      fails(parse(GgufFile().text("general.alignment", "32").bytes()), Errc::kCorrupt, "'general.alignment' is not a u32"));
}

TEST(GgufHeader, TensorsThatDoNotFitAreRefused) {
  const auto tensor = [](const std::vector<std::uint64_t>& ne, std::uint32_t type, std::uint64_t offset = 0) {
    return parse(GgufFile().tensor_at("t", ne, type, offset, std::string(64, 'x')).bytes());
  };
  EXPECT_TRUE(fails(tensor({16}, kQ4_0), Errc::kCorrupt, "tensor 1 of 1: 't': rows of 16 values, but Q4_0 has blocks of 32"));
  EXPECT_TRUE(fails(tensor({32}, 4), Errc::kUnsupported, "tensor 1 of 1: 't': unknown ggml type 4"));
  EXPECT_TRUE(fails(tensor(std::vector<std::uint64_t>(9, 1), kF32), Errc::kCorrupt,
                    "tensor 1 of 1: 't': 9 dimensions, at most 8 are supported"));
  EXPECT_TRUE(fails(tensor({kHuge / 2, 4}, kF32), Errc::kCorrupt,
                    "tensor 1 of 1: 't': shape [4, 9223372036854775807] has too many values"));
  EXPECT_TRUE(fails(tensor({kHuge / 4}, kF32), Errc::kCorrupt,
                    "tensor 1 of 1: 't': file is truncated: 18446744073709551612 bytes from offset 0 on, but the file has 128; "
                    "download it again"));
  EXPECT_TRUE(fails(tensor({1}, kF32, 32), Errc::kCorrupt, "tensor 1 of 1: 't': offset is 32, expected 0"));
  EXPECT_TRUE(fails(parse(GgufFile().tensor("t", {1}, kF32, "tttt").tensor("t", {1}, kF32, "tttt").bytes()), Errc::kCorrupt,
                    "tensor 't' is there twice"));
  EXPECT_TRUE(fails(parse(GgufFile().tensor("", {1}, kF32, "tttt").bytes()), Errc::kCorrupt, "tensor 1 of 1: the name is empty"));
}

TEST(GgufHeader, LongTableIsReadInPieces) {
  const std::string file =
      GgufFile().texts("tokens", std::vector<std::string>(50'000, "token")).tensor("a", {1}, kF32, "aaaa").bytes();
  const auto source = open_memory(as_bytes(file));
  const auto header = read_header(*source);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->table.find("tokens")->strings().size(), 50'000);
  EXPECT_EQ(header->table.tensors[0].name, "a");
  EXPECT_TRUE(fails(read_header(*source, 500'000), Errc::kUnsupported, "the table is larger than the limit of 500000 bytes"));
}

}  // namespace
}  // namespace ballast::gguf
