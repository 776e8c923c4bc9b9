#include "base/json.h"

#include "tests/support/files.h"

namespace ballast {
namespace {

// Parses and serializes again.
std::string reparse(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, text);
  return root ? simdjson::minify(*root) : root.error().message;
}

TEST(ParseJson, ReadsPlainJson) {
  EXPECT_EQ(reparse(R"({"a": [1, -2, 3.5, true, null, "x\ny"]})"), R"({"a":[1,-2,3.5,true,null,"x\ny"]})");
}

TEST(ParseJson, BareNanAndInfinityBecomeStrings) {
  EXPECT_EQ(reparse(R"({"a": NaN, "b": [Infinity, -Infinity]})"), R"({"a":"NaN","b":["Infinity","-Infinity"]})");
}

TEST(ParseJson, WordsInsideStringsAreLeftAlone) {
  EXPECT_EQ(reparse(R"(["NaN \" Infinity", "\\", NaN])"), R"(["NaN \" Infinity","\\","NaN"])");
}

TEST(ParseJson, IntegersPast64BitsBecomeDoubles) {
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, "[1000000000000000019884624838656, -1000000000000000019884624838656, 999999999999999999]");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->at(0).get_double().value(), 1e30);
  EXPECT_EQ(root->at(1).get_double().value(), -1e30);
  EXPECT_EQ(root->at(2).get_int64().value(), 999999999999999999);
}

TEST(ParseJson, LongFractionsAreLeftAlone) {
  EXPECT_EQ(reparse("[0.1000000000000000055511151231257827, 1234567890123456789012e-20]"), "[0.1,12.345678901234567]");
}

TEST(ParseJson, MalformedTextIsCorrupt) {
  for (const char* text : {"", "{", "[1,]", "{\"a\": }", "nul", "[\"a", "[\"a\\", "[NaNa]", "[1NaN]", "[- Infinity]", "{} {}"}) {
    simdjson::dom::parser parser;
    const auto root = parse_json(parser, text);
    ASSERT_FALSE(root) << text;
    EXPECT_EQ(root.error().code, Errc::kCorrupt);
    EXPECT_TRUE(root.error().message.starts_with("invalid JSON: ")) << root.error().message;
  }
}

}  // namespace
}  // namespace ballast
