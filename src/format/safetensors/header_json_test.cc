// Edge cases of the JSON in headers: what the reference implementation accepts, and what Ballast refuses in addition.

#include <gmock/gmock.h>

#include "format/safetensors/header.h"
#include "tests/support/files.h"
#include "tests/support/header_pieces.h"

namespace ballast::safetensors {
namespace {

using test::fails;
using test::safetensors;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr HeaderOptions kStrict{.strictness = Strictness::kStrict};
constexpr HeaderOptions kReference{.strictness = Strictness::kReference};

Result<Header> parse(std::string_view file, const HeaderOptions& options = kStrict) {
  return test::parse_both_ways(file, options);
}

// A header with one tensor 'a', described by `value`.
std::string with_tensor(std::string_view value) { return fmt::format(R"({{"a":{}}})", value); }

// A header with one tensor 'a' that has the additional fields `more`.
std::string with_fields(std::string_view more) {
  return with_tensor(fmt::format(R"({{"dtype":"U8","shape":[1],"data_offsets":[0,1],{}}})", more));
}

// Every accepted header below describes one byte of data in tensor 'a'.
void expect_accepted(std::string_view header, const HeaderOptions& options) {
  const std::string file = safetensors(header, "x");
  const auto parsed = parse(file, options);
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 1);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[0].dtype, DType::kU8);
  EXPECT_THAT(parsed->tensors[0].shape, ElementsAre(1));
  EXPECT_EQ(parsed->tensors[0].end, 1);
}

void expect_accepted(std::string_view header) {
  expect_accepted(header, kStrict);
  expect_accepted(header, kReference);
}

void expect_refused(std::string_view header, std::string_view message) {
  EXPECT_TRUE(fails(parse(safetensors(header, "x"), kStrict), Errc::kCorrupt, message));
  EXPECT_TRUE(fails(parse(safetensors(header, "x"), kReference), Errc::kCorrupt, message));
}

void expect_only_reference_accepts(std::string_view header, std::string_view message) {
  expect_accepted(header, kReference);
  EXPECT_TRUE(fails(parse(safetensors(header, "x"), kStrict), Errc::kCorrupt, message));
}

TEST(SafetensorsHeaderJson, EmptyHeaderIsInvalid) {
  EXPECT_TRUE(fails(parse(safetensors("")), Errc::kCorrupt, "invalid JSON in header: expected '{' at byte 8 of 8"));
}

TEST(SafetensorsHeaderJson, LoneBraceIsInvalid) {
  EXPECT_TRUE(fails(parse(safetensors("{")), Errc::kCorrupt, "invalid JSON in header: expected '\"' at byte 9 of 9"));
}

TEST(SafetensorsHeaderJson, AnyWhiteSpaceMayFollow) {
  const std::string file("\6\0\0\0\0\0\0\0{}\r \t\n", 14);
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->tensors, IsEmpty());
}

TEST(SafetensorsHeaderJson, WhiteSpaceIsAllowedBetweenAllTokens) {
  expect_accepted("\n{ \"a\"\t:\r{ \"dtype\" : \"U8\" , \"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 1 ] } } ");
}

TEST(SafetensorsHeaderJson, FormFeedIsNotWhiteSpace) {
  expect_refused("\f{}", "invalid JSON in header: expected '{' at byte 8 of 11");
}

TEST(SafetensorsHeaderJson, ByteOrderMarkIsInvalid) {
  expect_refused("\xef\xbb\xbf{}", "invalid JSON in header: expected '{' at byte 8 of 13");
}

TEST(SafetensorsHeaderJson, RootMustBeAnObject) {
  for (const char* root : {"[]", "1 ", "\"\"", "null", "true"}) {
    EXPECT_TRUE(fails(parse(safetensors(root)), Errc::kCorrupt,
                      fmt::format("invalid JSON in header: expected '{{' at byte 8 of {}", 8 + std::string_view(root).size())));
  }
}

TEST(SafetensorsHeaderJson, TextAfterTheRootIsInvalid) {
  expect_refused("{} x", "invalid JSON in header: text after the closing brace at byte 11 of 12");
  expect_refused("{}{}", "invalid JSON in header: text after the closing brace at byte 10 of 12");
}

TEST(SafetensorsHeaderJson, TextAfterTheRootIsNotReportedForTheLastTensor) {
  expect_refused(with_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})") + "]",
                 "invalid JSON in header: text after the closing brace at byte 61 of 62");
}

TEST(SafetensorsHeaderJson, NulPaddingIsInvalid) {
  expect_refused(std::string_view("{}\0\0", 4), "invalid JSON in header: text after the closing brace at byte 10 of 12");
}

TEST(SafetensorsHeaderJson, TrailingCommaIsInvalid) {
  expect_refused(R"({"__metadata__":{},})", "invalid JSON in header: expected '\"' at byte 27 of 28");
  expect_refused(with_tensor(R"({"dtype":"U8","shape":[1,],"data_offsets":[0,1]})"),
                 "tensor 'a': invalid JSON in header: expected a whole number at byte 38 of 62");
}

TEST(SafetensorsHeaderJson, SeveralKeysMayBeginWithUnderscores) {
  const std::string file = safetensors(R"({"__metadata__":{"k":"v"},"__a__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("__metadata":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                       "ab");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", "v")));
  ASSERT_EQ(header->tensors.size(), 2);
  EXPECT_EQ(header->tensors[0].name, "__a__");
  EXPECT_EQ(header->tensors[1].name, "__metadata");
}

TEST(SafetensorsHeaderJson, MetadataKeyMayContainEscapes) {
  const std::string file = safetensors(R"({"\u005f_metadata__":{"k":"v"}})");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", "v")));
}

TEST(SafetensorsHeaderJson, MetadataMustBeAnObjectOfStrings) {
  expect_refused(R"({"__metadata__":[]})", "invalid JSON in header: expected '{' at byte 24 of 27");
  expect_refused(R"({"__metadata__":{"a":1}})", "invalid JSON in header: expected '\"' at byte 29 of 32");
  expect_refused(R"({"__metadata__":{"a":null}})", "invalid JSON in header: expected '\"' at byte 29 of 35");
  expect_refused(R"({"__metadata__":nul})", "invalid JSON in header: expected a value at byte 24 of 28");
}

TEST(SafetensorsHeaderJson, DuplicateMetadataIsRefused) {
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", "invalid JSON in header: duplicate __metadata__ at byte 42 of 45");
  expect_refused(R"({"__metadata__":null,"__metadata__":null})",
                 "invalid JSON in header: duplicate __metadata__ at byte 44 of 49");
}

TEST(SafetensorsHeaderJson, ReferenceModeUsesTheLastOfDuplicateMetadataKeys) {
  const std::string file = safetensors(R"({"__metadata__":{"k":"first","k":"last"}})");
  const auto header = parse(file, kReference);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", "last")));
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "invalid JSON in header: duplicate metadata key 'k' at byte 47 of 49"));
}

TEST(SafetensorsHeaderJson, ReferenceModeUsesTheLastOfDuplicateTensors) {
  const std::string file =
      safetensors(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                  R"("a":{"dtype":"U8","shape":[1,1],"data_offsets":[0,1]}})",
                  "ab");
  const auto header = parse(file, kReference);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, DType::kU8);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(1, 1));
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(1));
  EXPECT_EQ(header->index.find(header->tensors, "b"), 1);
  EXPECT_TRUE(fails(parse(file), Errc::kCorrupt, "duplicate tensor 'a': once at [0, 1], once at [0, 2]"));
}

TEST(SafetensorsHeaderJson, SameNameAndRangeIsADuplicate) {
  constexpr std::string_view kTensor = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_only_reference_accepts(fmt::format("{{{},{}}}", kTensor, kTensor),
                                "duplicate tensor 'a': once at [0, 1], once at [0, 1]");
}

TEST(SafetensorsHeaderJson, NamesThatDifferOnlyInEscapesAreDuplicates) {
  expect_only_reference_accepts(
      R"({"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      "duplicate tensor 'a': once at [0, 1], once at [0, 1]");
}

TEST(SafetensorsHeaderJson, OnlyReferenceModeAcceptsATensorAsAnArray) {
  expect_only_reference_accepts(with_tensor(R"(["U8",[1],[0,1]])"),
                                "tensor 'a': invalid JSON in header: expected '{' at byte 13 of 30");
}

TEST(SafetensorsHeaderJson, ArrayTensorNeedsExactlyThreeElements) {
  EXPECT_TRUE(fails(parse(safetensors(with_tensor(R"(["U8",[1]])"), "x"), kReference), Errc::kCorrupt,
                    "tensor 'a': invalid JSON in header: fewer than three elements at byte 23 of 24"));
  EXPECT_TRUE(fails(parse(safetensors(with_tensor(R"(["U8",[1],[0,1],0])"), "x"), kReference), Errc::kCorrupt,
                    "tensor 'a': invalid JSON in header: more than three elements at byte 29 of 32"));
}

TEST(SafetensorsHeaderJson, OnlyReferenceModeAcceptsADtypeAsAVariant) {
  expect_only_reference_accepts(with_tensor(R"({"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]})"),
                                "tensor 'a': invalid JSON in header: expected '\"' at byte 22 of 68");
}

TEST(SafetensorsHeaderJson, DtypeAsAVariantNeedsExactlyOneNull) {
  const auto parse_variant = [](std::string_view variant) {
    const std::string header = with_tensor(fmt::format(R"({{"dtype":{},"shape":[1],"data_offsets":[0,1]}})", variant));
    return parse(safetensors(header, "x"), kReference);
  };
  EXPECT_TRUE(fails(parse_variant("{}"), Errc::kCorrupt, "tensor 'a': invalid JSON in header: no dtype at byte 24 of 59"));
  EXPECT_TRUE(fails(parse_variant(R"({"U8":null,"I8":null})"), Errc::kCorrupt,
                    "tensor 'a': invalid JSON in header: more than one dtype at byte 38 of 78"));
  EXPECT_TRUE(fails(parse_variant(R"({"U8":1})"), Errc::kCorrupt,
                    "tensor 'a': invalid JSON in header: expected a value at byte 28 of 65"));
}

TEST(SafetensorsHeaderJson, DtypeMayContainEscapes) {
  expect_accepted(with_tensor(R"({"dtype":"\u00558","shape":[1],"data_offsets":[0,1]})"));
}

TEST(SafetensorsHeaderJson, FieldsMayComeInAnyOrder) {
  expect_accepted(with_tensor(R"({"data_offsets":[0,1],"shape":[1],"dtype":"U8"})"));
}

TEST(SafetensorsHeaderJson, DuplicateFieldsAreRefused) {
  expect_refused(with_fields(R"("dtype":"U8")"), "tensor 'a': invalid JSON in header: duplicate field 'dtype' at byte 68 of 74");
  expect_refused(with_fields(R"("shape":[1])"), "tensor 'a': invalid JSON in header: duplicate field 'shape' at byte 68 of 73");
  expect_refused(with_fields(R"("data_offsets":[0,1])"),
                 "tensor 'a': invalid JSON in header: duplicate field 'data_offsets' at byte 75 of 82");
}

TEST(SafetensorsHeaderJson, MissingFieldsAreNamed) {
  expect_refused(with_tensor("{}"), "tensor 'a': invalid JSON in header: missing field 'dtype' at byte 15 of 16");
  expect_refused(with_tensor(R"({"dtype":"U8","data_offsets":[0,1]})"),
                 "tensor 'a': invalid JSON in header: missing field 'shape' at byte 48 of 49");
  expect_refused(with_tensor(R"({"dtype":"U8","shape":[1]})"),
                 "tensor 'a': invalid JSON in header: missing field 'data_offsets' at byte 39 of 40");
}

TEST(SafetensorsHeaderJson, TensorsMustBeObjects) {
  expect_refused(with_tensor("null"), "tensor 'a': invalid JSON in header: expected '{' at byte 13 of 18");
  expect_refused(with_tensor("1"), "tensor 'a': invalid JSON in header: expected '{' at byte 13 of 15");
}

TEST(SafetensorsHeaderJson, OffsetsMustBeExactlyTwo) {
  const auto with_offsets = [](std::string_view offsets) {
    return with_tensor(fmt::format(R"({{"dtype":"U8","shape":[1],"data_offsets":{}}})", offsets));
  };
  expect_refused(with_offsets("[]"), "tensor 'a': invalid JSON in header: expected a whole number at byte 55 of 58");
  expect_refused(with_offsets("[0]"), "tensor 'a': invalid JSON in header: expected ',' at byte 56 of 59");
  expect_refused(with_offsets("[0,1,2]"), "tensor 'a': invalid JSON in header: expected ']' at byte 58 of 63");
  expect_refused(with_offsets("null"), "tensor 'a': invalid JSON in header: expected '[' at byte 54 of 60");
}

TEST(SafetensorsHeaderJson, DimensionsMustBeWholeNumbersOf64Bits) {
  const auto with_dimension = [](std::string_view dimension) {
    return with_tensor(fmt::format(R"({{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}})", dimension));
  };
  for (const char* dimension : {"-1", "-0", "\"1\"", "null", "+1", "[1]"}) {
    const std::string header = with_dimension(dimension);
    expect_refused(
        header, fmt::format("tensor 'a': invalid JSON in header: expected a whole number at byte 36 of {}", 8 + header.size()));
  }
  expect_refused(with_dimension("1.0"), "tensor 'a': invalid JSON in header: expected a whole number at byte 37 of 63");
  expect_refused(with_dimension("1e0"), "tensor 'a': invalid JSON in header: expected a whole number at byte 37 of 63");
  expect_refused(with_dimension("01"), "tensor 'a': invalid JSON in header: number with a leading zero at byte 38 of 62");
  expect_refused(with_dimension("18446744073709551616"),
                 "tensor 'a': invalid JSON in header: number does not fit into 64 bits at byte 56 of 80");
}

TEST(SafetensorsHeaderJson, OtherFieldsAreIgnored) {
  expect_accepted(with_fields(R"("more":{"x":[1,-2.5e-3,true,false,null,"\"",{}],"y":[]})"));
}

TEST(SafetensorsHeaderJson, OtherFieldsMayRepeat) { expect_accepted(with_fields(R"("more":1,"more":2,"deep":{"k":1,"k":2})")); }

TEST(SafetensorsHeaderJson, OtherFieldsMayContainHugeIntegersAndNegativeZero) {
  expect_accepted(with_fields(R"("more":[123456789012345678901234567890,-0,-99999999999999999999])"));
}

TEST(SafetensorsHeaderJson, NumbersTooLargeForADoubleAreRefusedEvenIfIgnored) {
  expect_refused(with_fields(R"("more":1e400)"),
                 "tensor 'a': invalid JSON in header: number too large for a double at byte 72 of 74");
  expect_refused(with_fields(R"("more":-1e309)"),
                 "tensor 'a': invalid JSON in header: number too large for a double at byte 73 of 75");
  expect_accepted(with_fields(R"("more":[1e308,1e-400,0e999,0.0e400])"));
}

TEST(SafetensorsHeaderJson, IgnoredValuesMayNest125Deep) {
  expect_accepted(with_fields(R"("more":)" + std::string(125, '[') + std::string(125, ']')));
  std::string objects;
  for (int i = 0; i < 125; ++i) objects += R"({"":)";
  expect_accepted(with_fields(R"("more":)" + objects + "0" + std::string(125, '}')));
}

TEST(SafetensorsHeaderJson, IgnoredValuesNested126DeepAreRefused) {
  expect_refused(with_fields(R"("more":)" + std::string(126, '[') + std::string(126, ']')),
                 "tensor 'a': invalid JSON in header: values nested too deeply at byte 192 of 321");
}

TEST(SafetensorsHeaderJson, AMillionOpenBracketsDoNotOverflowTheStack) {
  expect_refused(with_fields(R"("more":)" + std::string(1'000'000, '[')),
                 "tensor 'a': invalid JSON in header: values nested too deeply at byte 192 of 1000069");
}

TEST(SafetensorsHeaderJson, IgnoredValuesMustBeValid) {
  expect_refused(with_fields(R"("more":NaN)"), "tensor 'a': invalid JSON in header: expected a value at byte 67 of 72");
  expect_refused(with_fields(R"("more":tru)"), "tensor 'a': invalid JSON in header: expected a value at byte 67 of 72");
  expect_refused(with_fields(R"("more":"\ud800")"),
                 "tensor 'a': invalid JSON in header: unpaired surrogate in a string at byte 74 of 77");
}

TEST(SafetensorsHeaderJson, NamesMayBeEmpty) {
  const std::string file = safetensors(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  const auto header = parse(file);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].name, "");
}

}  // namespace
}  // namespace ballast::safetensors
