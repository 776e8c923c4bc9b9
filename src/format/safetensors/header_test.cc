#include "format/safetensors/header.h"

#include <limits>

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "tests/support/files.h"
#include "tests/support/header_pieces.h"

namespace ballast::safetensors {
namespace {

using test::as_bytes;
using test::fails;
using test::safetensors;
using test::safetensors_claiming;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Pair;

Result<Header> parse(std::string_view file, const HeaderOptions& options = {}) { return test::parse_both_ways(file, options); }

TEST(SafetensorsHeader, EmptyObjectPaddedWithSpacesHasNoTensors) {
  const std::string file("\x08\0\0\0\0\0\0\0{}      ", 16);
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_start, 16);
  EXPECT_THAT(header->tensors, IsEmpty());
  EXPECT_THAT(header->metadata, IsEmpty());
  EXPECT_FALSE(header->has_metadata);
}

TEST(SafetensorsHeader, MetadataWithoutTensorsIsRead) {
  const std::string file = safetensors(R"({"__metadata__":{"format":"pt","b":""}})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, ElementsAre(Pair("b", ""), Pair("format", "pt")));
  EXPECT_THAT(header->tensors, IsEmpty());
}

TEST(SafetensorsHeader, MetadataMayBeEmpty) {
  const std::string file = safetensors(R"({"__metadata__":{}})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, IsEmpty());
  EXPECT_TRUE(header->has_metadata);
}

TEST(SafetensorsHeader, MetadataMayBeNull) {
  const std::string file = safetensors(R"({"__metadata__": null})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, IsEmpty());
  EXPECT_FALSE(header->has_metadata);
}

TEST(SafetensorsHeader, UnpaddedHeaderIsRead) {
  const std::string file = safetensors(R"({"t":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", std::string(24, '\0'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_start, 8 + 59);
  ASSERT_EQ(header->tensors.size(), 1);
  const TensorInfo& tensor = header->tensors[0];
  EXPECT_EQ(tensor.name, "t");
  EXPECT_EQ(tensor.dtype, DType::kF32);
  EXPECT_THAT(tensor.shape, ElementsAre(1, 2, 3));
  EXPECT_EQ(tensor.begin, 0);
  EXPECT_EQ(tensor.end, 24);
  EXPECT_EQ(tensor.file, 0);
  EXPECT_EQ(tensor.elements(), 6);
  EXPECT_EQ(header->index.find(header->tensors, "t"), 0);
}

TEST(SafetensorsHeader, PaddedHeaderIsRead) {
  const std::string file =
      safetensors(R"({"t":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}}     )", std::string(24, '\0'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_start, 72);
  EXPECT_EQ(header->tensors[0].bytes(), 24);
}

TEST(SafetensorsHeader, TwoF4ValuesShareAByte) {
  const std::string file = safetensors(R"({"t":{"dtype":"F4","shape":[1,2],"data_offsets":[0,1]}})", "\x21");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].dtype, DType::kF4);
  EXPECT_EQ(header->tensors[0].elements(), 2);
  EXPECT_EQ(header->tensors[0].bytes(), 1);
}

TEST(SafetensorsHeader, ThreeF4ValuesAreMisaligned) {
  const std::string file = safetensors(R"({"t":{"dtype":"F4","shape":[1,3],"data_offsets":[0,2]}})", "\x21\x03");
  EXPECT_TRUE(
      fails(parse(file), Errc::kCorrupt, "tensor 't': 3 values of F4 take 12 bits, which is not a whole number of bytes"));
}

TEST(SafetensorsHeader, FourF6ValuesTakeThreeBytes) {
  const std::string file = safetensors(R"({"t":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3]}})", "abc");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].dtype, DType::kF6E3M2);
}

TEST(SafetensorsHeader, ScalarHasRankZeroAndOneElement) {
  const std::string file = safetensors(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", std::string(8, '\0'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->tensors[0].shape, IsEmpty());
  EXPECT_EQ(header->tensors[0].elements(), 1);
}

TEST(SafetensorsHeader, EmptyTensorTakesNoBytes) {
  const std::string file = safetensors(R"({"e":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(2, 0));
  EXPECT_EQ(header->tensors[0].elements(), 0);
}

TEST(SafetensorsHeader, EmptyTensorAtAWrongOffsetIsCorrupt) {
  const std::string file = safetensors(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}})", "ab");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 'e': data begins at byte 1, expected 2 (overlaps the previous tensor)"));
}

TEST(SafetensorsHeader, TensorsAreOrderedByPosition) {
  const std::string file = safetensors(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "abc");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(1));
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(2));
  EXPECT_EQ(header->index.find(header->tensors, "b"), 1);
}

TEST(SafetensorsHeader, TenTensorsAtOneOffsetOverlap) {
  std::string entries;
  for (int i = 0; i < 10; ++i) {
    entries += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", i == 0 ? "" : ",", i);
  }
  const std::string file = safetensors("{" + entries + "}", std::string(16, '\0'));
  EXPECT_TRUE(
      fails(parse(file), Errc::kCorrupt, "tensor 't1': data begins at byte 0, expected 16 (overlaps the previous tensor)"));
}

TEST(SafetensorsHeader, HundredThousandOverlappingNamesAreRejectedInLinearTime) {
  std::string entries;
  for (int i = 0; i < 100'000; ++i) {
    entries += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", i == 0 ? "" : ",", i);
  }
  const std::string file = safetensors("{" + entries + "}", std::string(16, '\0'));
  EXPECT_TRUE(
      fails(parse(file), Errc::kCorrupt, "tensor 't1': data begins at byte 0, expected 16 (overlaps the previous tensor)"));
}

TEST(SafetensorsHeader, GapBetweenTensorsIsCorrupt) {
  const std::string file = safetensors(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "abc");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 'b': data begins at byte 2, expected 1 (leaves a gap)"));
}

TEST(SafetensorsHeader, GapBeforeTheFirstTensorIsCorrupt) {
  const std::string file = safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 'a': data begins at byte 1, expected 0 (leaves a gap)"));
}

TEST(SafetensorsHeader, EndBeforeBeginIsCorrupt) {
  const std::string file = safetensors(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[4,3]}})", "abcd");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 'b': data ends at byte 3, before it begins at byte 4"));
}

TEST(SafetensorsHeader, TrailingBytesAreCorrupt) {
  const std::string file =
      safetensors(R"({"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16 + 34, '\0'));
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensors cover 16 bytes of data, the file has 50 (34 trailing)"));
}

TEST(SafetensorsHeader, MissingBytesAreReportedAsTruncation) {
  const std::string file = safetensors(R"({"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})", std::string(14, '\0'));
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt,
                    "file is truncated: tensors need 16 bytes of data, the file has 14 (2 missing); download it again"));
}

TEST(SafetensorsHeader, DataMayEndExactlyAtTheEndOfTheFile) {
  const std::string file = safetensors(R"({"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, '\0'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_start + header->tensors[0].end, file.size());
}

TEST(SafetensorsHeader, HeaderMayEndExactlyAtTheEndOfTheFile) {
  EXPECT_EQ(read_data_start(as_bytes(safetensors_claiming(2, "")), 10), 10);
  EXPECT_TRUE(
      fails(read_data_start(as_bytes(safetensors_claiming(3, "")), 10), Errc::kCorrupt,
            "header of 3 bytes ends past the end of the file (10 bytes); the file is truncated or not a SafeTensors file"));
}

TEST(SafetensorsHeader, AbsurdLengthExceedsTheLimit) {
  const std::string file("\x3c\0\0\0\0\xff\xff\xff", 8);
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt,
                    "header of 18446742974197923900 bytes exceeds the limit of 100000000 bytes; the file is damaged or not a "
                    "SafeTensors file"));
}

TEST(SafetensorsHeader, EmptyInputIsTooSmall) {
  EXPECT_TRUE(fails(parse(""), Errc::kCorrupt, "file of 0 bytes is too small for a SafeTensors header (at least 8 bytes)"));
}

TEST(SafetensorsHeader, SevenBytesAreTooSmall) {
  EXPECT_TRUE(fails(parse(std::string_view("\1\0\0\0\0\0\0", 7)), Errc::kCorrupt,
                    "file of 7 bytes is too small for a SafeTensors header (at least 8 bytes)"));
}

TEST(SafetensorsHeader, EightBytesCannotHoldAHeaderOfSixty) {
  EXPECT_TRUE(
      fails(parse(safetensors_claiming(60, "")), Errc::kCorrupt,
            "header of 60 bytes ends past the end of the file (8 bytes); the file is truncated or not a SafeTensors file"));
}

TEST(SafetensorsHeader, LengthPastEndOfFileIsCorrupt) {
  EXPECT_TRUE(
      fails(parse(safetensors_claiming(1000, "{}")), Errc::kCorrupt,
            "header of 1000 bytes ends past the end of the file (10 bytes); the file is truncated or not a SafeTensors file"));
}

TEST(SafetensorsHeader, LengthThatOverflowsIsCorruptWithAnyLimit) {
  const std::string file = safetensors_claiming(std::numeric_limits<std::uint64_t>::max(), "");
  EXPECT_TRUE(fails(parse(file, {.max_header_bytes = std::numeric_limits<std::uint64_t>::max()}), Errc::kCorrupt,
                    "header of 18446744073709551615 bytes ends past the end of the file (8 bytes); the file is truncated or not "
                    "a SafeTensors file"));
}

TEST(SafetensorsHeader, HundredMillionBytesAreAllowed) {
  const auto start = read_data_start(as_bytes(safetensors_claiming(100'000'000, "")), 200'000'000);
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(*start, 100'000'008);
}

TEST(SafetensorsHeader, OneByteOverHundredMillionExceedsTheLimit) {
  EXPECT_TRUE(
      fails(read_data_start(as_bytes(safetensors_claiming(100'000'001, "")), 200'000'000), Errc::kCorrupt,
            "header of 100000001 bytes exceeds the limit of 100000000 bytes; raise max_header_bytes if you trust the file"));
}

TEST(SafetensorsHeader, RaisedLimitAllowsLargerHeaders) {
  const auto start =
      read_data_start(as_bytes(safetensors_claiming(100'000'001, "")), 200'000'000, {.max_header_bytes = 100'000'001});
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(*start, 100'000'009);
}

TEST(SafetensorsHeader, LoweredLimitApplies) {
  EXPECT_TRUE(fails(parse(safetensors("{}"), {.max_header_bytes = 1}), Errc::kCorrupt,
                    "header of 2 bytes exceeds the limit of 1 bytes; raise max_header_bytes if you trust the file"));
}

TEST(SafetensorsHeader, FrontThatEndsInsideTheHeaderIsAnInvalidArgument) {
  EXPECT_TRUE(fails(parse_header(as_bytes(safetensors_claiming(100, "{}")), 1000), Errc::kInvalidArgument,
                    "got only 10 bytes of a header that ends at byte 108"));
}

TEST(SafetensorsHeader, FrontMayEndWhereDataBegins) {
  const std::string front = safetensors(R"({"t":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}})");
  const auto header = parse_header(as_bytes(front), front.size() + 1000);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].bytes(), 1000);
}

TEST(SafetensorsHeader, InvalidUtf8IsCorrupt) {
  EXPECT_TRUE(fails(parse(safetensors("\xff")), Errc::kCorrupt, "invalid UTF-8 in header at byte 8 of 9"));
}

TEST(SafetensorsHeader, InvalidUtf8IsFoundInsideNames) {
  EXPECT_TRUE(fails(parse(safetensors("{\"na\xc3\xafve \xed\xa0\x80\":null}")), Errc::kCorrupt,
                    "invalid UTF-8 in header at byte 17 of 27"));
}

TEST(SafetensorsHeader, ShapeThatNeedsMoreBytesThanItsOffsetsCoverIsCorrupt) {
  const std::string file = safetensors(R"({"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,4]}})", "abcd");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 't': shape [2, 2] of I32 needs 16 bytes, data_offsets [0, 4] cover 4"));
}

TEST(SafetensorsHeader, ElementCountPast64BitsOverflows) {
  const std::string file =
      safetensors(R"({"t":{"dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,16]}})", std::string(16, '\0'));
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 't': size of shape [2, 18446744073709551614] of I32 overflows 64 bits"));
}

TEST(SafetensorsHeader, BitCountPast64BitsOverflows) {
  const std::string file =
      safetensors(R"({"t":{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}})", std::string(16, '\0'));
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "tensor 't': size of shape [2, 9223372036854775807] of I32 overflows 64 bits"));
}

TEST(SafetensorsHeader, OverflowBeforeAZeroDimensionCounts) {
  const std::string file = safetensors(R"({"t":{"dtype":"U8","shape":[9223372036854775808,4,0],"data_offsets":[0,0]}})");
  EXPECT_TRUE(
      fails(parse(file), Errc::kCorrupt, "tensor 't': size of shape [9223372036854775808, 4, 0] of U8 overflows 64 bits"));
}

TEST(SafetensorsHeader, NothingOverflowsAfterAZeroDimension) {
  const std::string file = safetensors(R"({"t":{"dtype":"U8","shape":[0,9223372036854775808,4],"data_offsets":[0,0]}})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].elements(), 0);
}

TEST(SafetensorsHeader, UnknownDtypeIsUnsupportedAndTheErrorListsTheKnownOnes) {
  const std::string file = safetensors(R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", "abcd");
  EXPECT_TRUE(fails(parse(file), Errc::kUnsupported,
                    "tensor 't': unknown dtype 'f32'; known dtypes are BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, "
                    "F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64"));
}

TEST(SafetensorsHeader, NamesAreEscapedInMessages) {
  const std::string file =
      safetensors(R"({"\u001b[31m\"'\n\u0000\u202e":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", "ab");
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt,
                    R"(tensor '\x1b[31m\"\'\n\x00\u202e': shape [1] of U8 needs 1 bytes, data_offsets [0, 2] cover 2)"));
}

TEST(SafetensorsHeader, NamesWithEscapesAreDecoded) {
  const std::string file = safetensors(R"({"a\u0000\ud83d\ude00\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].name, std::string_view("a\0\xf0\x9f\x98\x80\n", 7));
  EXPECT_TRUE(header->index.find(header->tensors, header->tensors[0].name));
}

TEST(SafetensorsHeader, NamesStayValidWhenTheHeaderMoves) {
  const std::string file = safetensors(R"({"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a");
  auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  const Header moved = std::move(*header);
  EXPECT_EQ(moved.tensors[0].name, "a");
  EXPECT_THAT(moved.tensors[0].shape, ElementsAre(1));
}

// A tensor of one byte with a name and a shape of any length.
std::string entry(std::string_view name, std::size_t rank, std::size_t position) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                     fmt::join(std::vector<int>(rank, 1), ","), position, position + 1);
}

TEST(SafetensorsHeader, TablesGrowIfTheEstimateIsTooLow) {
  constexpr std::size_t kTensors = 3000;
  std::string text = "{";
  for (std::size_t i = 0; i < kTensors; ++i) {  // few dims at first, then more than were reserved
    text += (i == 0 ? "" : ",") + entry(fmt::format("{}", i), i < 100 ? 1 : i % 50, i);
  }
  const std::string file = safetensors(text + "}", std::string(kTensors, 'x'));
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) {
    EXPECT_EQ(header->tensors[i].name, fmt::format("{}", i));
    EXPECT_THAT(header->tensors[i].shape, ElementsAreArray(std::vector<std::uint64_t>(i < 100 ? 1 : i % 50, 1)));
  }
}

TEST(SafetensorsHeader, PiecesMayEndAnywhere) {
  const std::string file = safetensors(
      "{ \"__metadata__\" : {\"k\":\"\\u00e9\\n\xc3\xa9\",\"l\":\"\"} ,\n\"\xf0\x9f\x98\x80\xc3\xa9\":"
      R"({"shape":[],"x":[-1.5e+3,true,null,"\ud83d\ude00"],"data_offsets":[0,1],"dtype":"U8"},)"
      R"("\ud83d\ude00\"":{"dtype":"F32","shape":[2,3],"data_offsets":[1,25]})"
      "}   \n  ",
      std::string(25, 'x'));
  const auto header = parse_header(as_bytes(file), file.size());
  ASSERT_TRUE(header) << header.error().message;
  for (std::size_t piece = 1; piece <= file.size(); ++piece) test::expect_same_in_pieces(file, header, {}, piece);
}

TEST(SafetensorsHeader, EntriesMayBeLargerThanAPiece) {
  const std::string large(100'000, 'l');
  const std::string file = safetensors("{" + entry("a", 1, 0) + "," + entry(large, 1, 1) + R"(,"__metadata__":{"k":")" + large +
                                           "\"}," + entry("b", 10'000, 2) + "}" + std::string(10'000, ' '),
                                       "xyz");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3);
  EXPECT_EQ(header->tensors[1].name, large);
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", large)));
}

TEST(SafetensorsHeader, NamesReadInPiecesStayValidWhenTheHeaderMoves) {
  const std::string file = safetensors("{" + entry("a", 1, 0) + "," + entry("\\u0062", 2, 1) + "}", "xy");
  auto read = read_header(*open_memory(as_bytes(file)), file.size() - 2, {}, 32);
  ASSERT_TRUE(read && *read);
  const Header moved = std::move(**read);
  EXPECT_EQ(moved.tensors[0].name, "a");
  EXPECT_EQ(moved.tensors[1].name, "b");
  EXPECT_THAT(moved.tensors[1].shape, ElementsAre(1, 1));
}

}  // namespace
}  // namespace ballast::safetensors
