#include "format/mlx_json/document.h"

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast::mlx_json {
namespace {

using test::as_bytes;
using test::fails;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Reads a text in pieces of many sizes, so that every token is split somewhere, and expects the same result each time.
Result<Document> read(std::string_view text) {
  const auto source = open_memory(as_bytes(text));
  auto whole = read_document(*source);
  for (const std::size_t piece : {1, 2, 3, 5, 7, 11, 16, 31}) {
    const auto cut = read_document(*source, {.piece = piece});
    EXPECT_EQ(cut.has_value(), whole.has_value()) << text << " in pieces of " << piece;
    if (!cut && !whole) {
      EXPECT_EQ(cut.error().message, whole.error().message) << "in pieces of " << piece;
    }
    if (cut && whole) {
      EXPECT_EQ(cut->checkpoints, whole->checkpoints) << "in pieces of " << piece;
    }
  }
  return whole;
}

std::string with_data(std::string_view data, std::string_view dtype = "float32", std::string_view shape = "[2]") {
  return fmt::format(R"({{"weights":{{"t":{{"shape":{},"dtype":"{}","data":{}}}}}}})", shape, dtype, data);
}

TEST(MlxJsonDocument, TensorsAreLaidOutInTheOrderOfTheText) {
  const auto document = read(R"({"version": "1.0", "weights": {"b": {"shape": [2, 1], "dtype": "float16", "data": [1, 2.5]},)"
                             R"( "a": {"shape": [], "dtype": "float64", "data": [-1e-3]}}})");
  ASSERT_TRUE(document) << document.error().message;
  const auto& tensors = document->table.tensors;
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_EQ(document->table.data_start, 0);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].dtype, DType::kF16);
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(tensors[0].begin, 0);
  EXPECT_EQ(tensors[0].end, 4);
  EXPECT_EQ(tensors[1].name, "a");
  EXPECT_EQ(tensors[1].dtype, DType::kF64);
  EXPECT_THAT(tensors[1].shape, IsEmpty());
  EXPECT_EQ(tensors[1].begin, 4);
  EXPECT_EQ(tensors[1].end, 12);
  EXPECT_EQ(document->table.index.find(tensors, "a"), 1);
  EXPECT_THAT(document->checkpoints, ElementsAre(83, 141));
}

TEST(MlxJsonDocument, KeysMayComeInAnyOrderAndOthersAreIgnored) {
  const auto document = read(
      R"({"note": {"deep": [[], {}, [1, {"x": null}], NaN, -Infinity, "\ud83d\ude00\u00e9"]}, "weights": )"
      R"({"t": {"data": [1, 2, 3], "strides": [1], "dtype": "int32", "name": "é", "shape": [3]}}, "version": 2, "z": 1e400})");
  ASSERT_TRUE(document) << document.error().message;
  ASSERT_EQ(document->table.tensors.size(), 1);
  EXPECT_EQ(document->table.tensors[0].dtype, DType::kI32);
  EXPECT_THAT(document->table.tensors[0].shape, ElementsAre(3));
  EXPECT_THAT(document->table.metadata, IsEmpty());
}

TEST(MlxJsonDocument, EveryKindOfEntryIsLexicallyAllowed) {
  const auto document =
      read(with_data(R"([ -0, 0.5E+1,1e2 ,)"
                     "\n\t"
                     R"(NaN, Infinity, -Infinity, "NaN", "Infinity", "-Infinity", "nan:7fc00001", true, false ])",
                     "float32", "[12]"));
  ASSERT_TRUE(document) << document.error().message;
}

TEST(MlxJsonDocument, EmptyTensorsAndNoTensorsAreFine) {
  EXPECT_THAT(read(R"({"weights": {}})")->table.tensors, IsEmpty());
  const auto document = read(with_data("[ ]", "bool", "[0, 3]"));
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->table.tensors[0].bytes(), 0);
  EXPECT_THAT(document->checkpoints, IsEmpty());
}

TEST(MlxJsonDocument, DtypesHaveNamesAndSomeHaveCodes) {
  for (const auto& [code, dtype] : {std::pair(0, DType::kF32), std::pair(1, DType::kI32), std::pair(2, DType::kF16),
                                    std::pair(3, DType::kBF16), std::pair(4, DType::kU32)}) {
    const auto document = read(fmt::format(R"({{"weights":{{"t":{{"dtype":{},"shape":[1],"data":[1]}}}}}})", code));
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(document->table.tensors[0].dtype, dtype);
  }
  EXPECT_EQ(read(with_data("[1,2]", "uint64"))->table.tensors[0].dtype, DType::kU64);
  EXPECT_TRUE(
      fails(read(with_data("[1]", "int4")), Errc::kUnsupported,
            "tensor 't': unknown dtype 'int4' at byte 37; known dtypes are float32, float16, bfloat16, float64, int8, int16, "
            "int32, int64, uint8, uint16, uint32, uint64, bool"));
  EXPECT_TRUE(
      fails(read(R"({"weights":{"t":{"dtype":5}}})"), Errc::kUnsupported,
            "tensor 't': unknown dtype code 5 at byte 25; known codes are 0 (float32), 2 (float16), 3 (bfloat16), 1 (int32), "
            "4 (uint32)"));
}

TEST(MlxJsonDocument, StringsInMetadataAreRead) {
  const auto document = read(R"({"metadata": {"format": "pt", "n": 5, "a\nb": "\"é\u00e9\""}, "weights": {}})");
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_THAT(document->table.metadata, ElementsAre(Pair("a\nb", "\"éé\""), Pair("format", "pt")));
  EXPECT_THAT(read(R"({"metadata": null, "weights": {}})")->table.metadata, IsEmpty());
  EXPECT_TRUE(fails(read(R"({"metadata": {"a": "", "a": ""}})"), Errc::kCorrupt, "duplicate metadata key 'a' at byte 30"));
}

TEST(MlxJsonDocument, HasACheckpointAtEveryStride) {
  std::string data = "[";
  std::vector<std::uint64_t> expected;
  const std::size_t before = with_data("").size() - 3;
  for (std::uint64_t i = 0; i < 2 * kStride + 1; ++i) {
    if (i != 0) data += i % 3 == 0 ? ",\n  " : i % 5 == 0 ? " , " : ",";
    if (i % kStride == 0) expected.push_back(before + data.size() + fmt::format("[{}]", 2 * kStride + 1).size() - 3);
    data += std::to_string(i % 1000);
  }
  const auto document = read(with_data(data + "]", "float32", fmt::format("[{}]", 2 * kStride + 1)));
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->table.tensors[0].elements(), 2 * kStride + 1);
  ASSERT_EQ(document->checkpoints.size(), 3);
  EXPECT_THAT(document->checkpoints, ::testing::ElementsAreArray(expected));
}

TEST(MlxJsonDocument, MetadataOnlyVariantIsRecognized) {
  EXPECT_TRUE(fails(read(R"({"weights":{"t":{"shape":[2],"dtype":0}}})"), Errc::kUnsupported,
                    "tensor 't': metadata only: a dtype code without data at byte 39; open the model that this file "
                    "describes"));
  EXPECT_TRUE(fails(read(R"({"weights":{"t":{"shape":[2],"dtype":"float32"}}})"), Errc::kCorrupt,
                    "tensor 't': missing key 'data' at byte 47"));
}

TEST(MlxJsonDocument, ErrorsInDataHaveTheTensorTheElementAndTheByte) {
  const auto refuses = [](std::string_view data, std::string_view message) {
    return fails(read(with_data(data)), Errc::kCorrupt, fmt::format("tensor 't': {}", message));
  };
  EXPECT_TRUE(refuses("[1,[2]]", "element 1: expected a number, found an array at byte 57"));
  EXPECT_TRUE(refuses("[1,{}]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,null]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,\"2\"]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,\"nan\"]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,\"nan:7fc0001\"]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,\"nan:7fc0000g\"]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,nan]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,Inf]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,-Inf]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,tru]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[,1]", "element 0: expected a number at byte 55"));
  EXPECT_TRUE(refuses("[1,.5]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,+5]", "element 1: expected a number at byte 57"));
  EXPECT_TRUE(refuses("[1,-]", "element 1: expected a digit at byte 58"));
  EXPECT_TRUE(refuses("[1,2.]", "element 1: expected a digit at byte 59"));
  EXPECT_TRUE(refuses("[1,2e]", "element 1: expected a digit at byte 59"));
  EXPECT_TRUE(refuses("[1,2e+,3]", "element 1: expected a digit at byte 60"));
  EXPECT_TRUE(refuses("[1,02]", "element 1: expected ',' or ']' at byte 58"));
  EXPECT_TRUE(refuses("[1 2]", "element 0: expected ',' or ']' at byte 57"));
  EXPECT_TRUE(refuses("[1,2}", "element 1: expected ',' or ']' at byte 58"));
  EXPECT_TRUE(refuses("7", "expected '[' at byte 54"));
  EXPECT_TRUE(refuses(fmt::format("[{}]", std::string(4097, '1')), "element 0: number longer than 4096 characters at byte 55"));
  EXPECT_TRUE(read(with_data(fmt::format("[1,{}]", std::string(4096, '1')))));
}

TEST(MlxJsonDocument, CountsMustMatchTheShape) {
  EXPECT_TRUE(
      fails(read(with_data("[1]")), Errc::kCorrupt, "tensor 't': shape [2] needs 2 values, there are 1 in data at byte 54"));
  EXPECT_TRUE(
      fails(read(with_data("[1,2,3]")), Errc::kCorrupt, "tensor 't': shape [2] needs 2 values, there are 3 in data at byte 54"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[]")), Errc::kCorrupt,
                    "tensor 't': shape [] needs 1 values, there are 0 in data at byte 53"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[9223372036854775808,2]")), Errc::kCorrupt,
                    "tensor 't': size of shape [9223372036854775808, 2] of F32 overflows 64 bits at byte 77"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[18446744073709551616]")), Errc::kCorrupt,
                    "tensor 't': number does not fit into 64 bits at byte 26"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[-1]")), Errc::kCorrupt, "tensor 't': expected a whole number at byte 26"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[2.0]")), Errc::kCorrupt, "tensor 't': expected a whole number at byte 26"));
  EXPECT_TRUE(fails(read(with_data("[]", "float32", "[0000000000000000000000000000099999]")), Errc::kCorrupt,
                    "tensor 't': number with a leading zero at byte 26"));
  EXPECT_TRUE(
      fails(read(with_data("[]", "float32", "[02]")), Errc::kCorrupt, "tensor 't': number with a leading zero at byte 26"));
}

TEST(MlxJsonDocument, DuplicatesAreRefused) {
  constexpr std::string_view kTensor = R"({"shape":[0],"dtype":"int8","data":[]})";
  EXPECT_TRUE(fails(read(fmt::format(R"({{"weights":{{"x":{0},"y":{0},"\u0078":{0}}}}})", kTensor)), Errc::kCorrupt,
                    "duplicate tensor 'x': once at byte 16, once at byte 107"));
  EXPECT_TRUE(
      fails(read(R"({"weights":{"t":{"data":[],"data":[]}}})"), Errc::kCorrupt, "tensor 't': duplicate key 'data' at byte 34"));
  EXPECT_TRUE(fails(read(R"({"weights":{},"weights":{}})"), Errc::kCorrupt, "duplicate key 'weights' at byte 24"));
  EXPECT_TRUE(fails(read(R"({"metadata":{},"metadata":0})"), Errc::kCorrupt, "duplicate key 'metadata' at byte 26"));
}

TEST(MlxJsonDocument, MalformedTextIsCorrupt) {
  const auto refuses = [](std::string_view text, std::string_view message) { return fails(read(text), Errc::kCorrupt, message); };
  EXPECT_TRUE(refuses("", "the text ends at byte 0, expected '{'"));
  EXPECT_TRUE(refuses("[]", "expected '{' at byte 0"));
  EXPECT_TRUE(refuses("{}", "'weights' is missing or not an object"));
  EXPECT_TRUE(refuses(R"({"weights":null})", "expected '{' at byte 11"));
  EXPECT_TRUE(refuses(R"({"weights":{}} x)", "text after the closing brace at byte 15"));
  EXPECT_TRUE(refuses(R"({"weights":{},})", "expected a string at byte 14"));
  EXPECT_TRUE(refuses(R"({"weights" {}})", "expected ':' at byte 11"));
  EXPECT_TRUE(refuses(R"({"weights":{"t":[]}})", "tensor 't': expected '{' at byte 16"));
  EXPECT_TRUE(refuses(R"({"weights":{"t":{}}})", "tensor 't': missing key 'dtype' at byte 18"));
  EXPECT_TRUE(refuses(R"({"weights":{"t":{"dtype":0}}})", "tensor 't': missing key 'shape' at byte 27"));
  EXPECT_TRUE(refuses(R"({"a":[1,2)", "the text ends at byte 9, expected ']'"));
  EXPECT_TRUE(refuses(R"({"a":"b)", "the text ends at byte 7, expected the end of a string"));
  EXPECT_TRUE(refuses(R"({"a":nul})", "expected a value at byte 5"));
  EXPECT_TRUE(refuses(R"({"a":{1:2}})", "expected a string at byte 6"));
  EXPECT_TRUE(refuses("{\"a\":\"\n\"}", "control character in a string at byte 6"));
  EXPECT_TRUE(refuses(std::string_view("{\"a\":\0}", 7), "expected a value at byte 5"));
  EXPECT_TRUE(refuses(R"({"a":"\x"})", "unknown escape in a string at byte 7"));
  EXPECT_TRUE(refuses(R"({"a":"\u12g4"})", "\\u escape without four hexadecimal digits at byte 7"));
  EXPECT_TRUE(refuses(R"({"a":"\ud800x"})", "unpaired surrogate in a string at byte 12"));
  EXPECT_TRUE(refuses(R"({"a":"\udc00"})", "unpaired surrogate in a string at byte 12"));
  EXPECT_TRUE(refuses(R"({"a":"\ud800\u0041"})", "unpaired surrogate in a string at byte 18"));
  EXPECT_TRUE(refuses("{\"a\":\"x\xff\"}", "invalid UTF-8 at byte 7"));
  EXPECT_TRUE(refuses("{\"a\":\"\xe2\x82", "invalid UTF-8 at byte 6"));
  EXPECT_TRUE(refuses("\xff", "expected '{' at byte 0"));
  EXPECT_TRUE(refuses(with_data("[1,2]").substr(0, 57), "tensor 't': element 1: the text ends at byte 57, expected a number"));
  EXPECT_TRUE(refuses(with_data("[1,2]").substr(0, 56), "tensor 't': element 0: the text ends at byte 56, expected ',' or ']'"));
  EXPECT_TRUE(refuses("version https://git-lfs.github.com/spec/v1\n",
                      "expected '{' at byte 0; this is a Git LFS pointer: not downloaded; run `git lfs pull` in its repository"));
}

TEST(MlxJsonDocument, EveryTruncationIsCorrupt) {
  const std::string text =
      R"({"a": [true, "\u00e9"], "weights": {"t": {"shape": [2], "dtype": "float32", "data": [1.5e3, "NaN"]}}})";
  ASSERT_TRUE(read(text));
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto document = read(std::string_view(text).substr(0, length));
    ASSERT_FALSE(document) << length;
    EXPECT_EQ(document.error().code, Errc::kCorrupt);
  }
}

TEST(MlxJsonDocument, NestingIsLimited) {
  const auto nested = [](std::size_t depth) {
    return fmt::format(R"({{"a":{}{},"weights":{{}}}})", std::string(depth, '['), std::string(depth, ']'));
  };
  EXPECT_TRUE(read(nested(126)));
  EXPECT_TRUE(fails(read(nested(127)), Errc::kCorrupt, "values nested too deeply at byte 131"));
  EXPECT_TRUE(fails(read(nested(100'000)), Errc::kCorrupt, "values nested too deeply at byte 131"));
}

TEST(MlxJsonDocument, TableSizeIsLimited) {
  const auto source = open_memory(as_bytes(R"({"weights":{"t":{"shape":[0,0,0,0],"dtype":"int8","data":[]}}})"));
  EXPECT_TRUE(read_document(*source, {.max_table_bytes = 200}));
  EXPECT_TRUE(fails(read_document(*source, {.max_table_bytes = 150}), Errc::kCorrupt,
                    "tensor 't': names, shapes and metadata exceed the limit of 150 bytes at byte 31"));
  EXPECT_TRUE(fails(read_document(*source, {.max_table_bytes = 5}), Errc::kCorrupt, "string longer than 5 bytes at byte 1"));
}

TEST(MlxJsonDocument, ReturnsErrorsOfTheSource) {
  class Broken final : public Source {
   public:
    std::uint64_t size() const override { return 100; }
    Result<void> read_at(std::uint64_t, std::span<std::byte>) const override {
      return std::unexpected(Error{.code = Errc::kIo, .message = "no disk"});
    }
    Result<std::span<const std::byte>> map() const override { return std::span<const std::byte>(); }
    Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }
  };
  EXPECT_TRUE(fails(read_document(Broken()), Errc::kIo, "no disk"));
}

}  // namespace
}  // namespace ballast::mlx_json
