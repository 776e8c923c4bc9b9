#include "format/safetensors/json_scanner.h"

#include <limits>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace ballast::safetensors {
namespace {

struct Failure {
  std::string message;
  std::size_t at;
  bool operator==(const Failure&) const = default;
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.message << " at " << failure.at; }

std::optional<std::string> read_string(std::string_view text) {
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  std::string_view out;
  if (!scanner.string(out) || !scanner.at_end()) return std::nullopt;
  return std::string(out);
}

std::optional<std::uint64_t> read_number(std::string_view text) {
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  std::uint64_t out = 0;
  if (!scanner.whole_number(out) || !scanner.at_end()) return std::nullopt;
  return out;
}

// The failure for a text that should be one string.
Failure string_failure(std::string_view text) {
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  std::string_view out;
  EXPECT_FALSE(scanner.string(out));
  return {.message = scanner.failure(), .at = scanner.failed_at()};
}

// The failure for a text that should be one value.
Failure value_failure(std::string_view text) {
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  EXPECT_FALSE(scanner.skip_value(0) && scanner.at_end());
  return {.message = scanner.failure(), .at = scanner.failed_at()};
}

bool skips(std::string_view text) {
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  return scanner.skip_value(0) && scanner.at_end();
}

TEST(JsonScanner, PlainStringsAreViewsOfTheText) {
  const std::string text = R"("weight" )";
  std::deque<std::string> decoded;
  JsonScanner scanner(text, decoded);
  std::string_view out;
  ASSERT_TRUE(scanner.string(out));
  EXPECT_EQ(out, "weight");
  EXPECT_EQ(out.data(), text.data() + 1);
  EXPECT_TRUE(decoded.empty());
}

TEST(JsonScanner, EscapesAreDecoded) {
  EXPECT_EQ(read_string(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("a\u0041\u00e9\u20ac\uD83D\uDE00z")"), "aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(read_string(R"("\uFFFF")"), "\xef\xbf\xbf");
  EXPECT_EQ(read_string(R"("\udbff\udfff")"), "\xf4\x8f\xbf\xbf");
}

TEST(JsonScanner, StringsEndAtAnyOffsetWithinAWord) {
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string body(length, 'a');
    EXPECT_EQ(read_string('"' + body + '"'), body);
    EXPECT_EQ(read_string('"' + body + "\\n" + body + '"'), body + '\n' + body);
  }
}

TEST(JsonScanner, StringsMayContainAllBytesFromSpace) {
  for (int c = 0x20; c < 0x100; ++c) {
    if (c == '"' || c == '\\') continue;
    for (std::size_t at = 0; at < 9; ++at) {
      std::string body(9, 'a');
      body[at] = static_cast<char>(c);
      EXPECT_EQ(read_string('"' + body + '"'), body) << c;
    }
  }
}

TEST(JsonScanner, ControlCharactersInStringsAreFoundAtAnyOffset) {
  for (char c = 0; c < 0x20; ++c) {
    for (std::size_t at = 0; at < 17; ++at) {
      std::string body(17, '!');
      body[at] = c;
      EXPECT_EQ(string_failure('"' + body + '"'), (Failure{.message = "control character in a string", .at = 1 + at}));
    }
  }
}

TEST(JsonScanner, UnterminatedStringsAreRefused) {
  EXPECT_EQ(string_failure(R"("abc)"), (Failure{.message = "unterminated string", .at = 4}));
  EXPECT_EQ(string_failure(R"("abc\)"), (Failure{.message = "unterminated string", .at = 5}));
  EXPECT_EQ(string_failure(R"("\u12)"), (Failure{.message = "unterminated string", .at = 3}));
  EXPECT_EQ(string_failure(R"("\ud83d\u)"), (Failure{.message = "unterminated string", .at = 9}));
  EXPECT_EQ(string_failure("abc"), (Failure{.message = "expected '\"'", .at = 0}));
  EXPECT_EQ(string_failure(""), (Failure{.message = "expected '\"'", .at = 0}));
}

TEST(JsonScanner, UnknownEscapesAreRefused) {
  EXPECT_EQ(string_failure(R"("\x41")"), (Failure{.message = "unknown escape in a string", .at = 2}));
  EXPECT_EQ(string_failure(R"("\u12g4")"), (Failure{.message = "\\u escape without four hexadecimal digits", .at = 3}));
  EXPECT_EQ(string_failure(R"("\u-123")"), (Failure{.message = "\\u escape without four hexadecimal digits", .at = 3}));
  EXPECT_EQ(string_failure(R"("\u 123")"), (Failure{.message = "\\u escape without four hexadecimal digits", .at = 3}));
}

TEST(JsonScanner, UnpairedSurrogatesAreRefused) {
  EXPECT_EQ(string_failure(R"("\ud800")"), (Failure{.message = "unpaired surrogate in a string", .at = 7}));
  EXPECT_EQ(string_failure(R"("\ud800a\u0041")"), (Failure{.message = "unpaired surrogate in a string", .at = 7}));
  EXPECT_EQ(string_failure(R"("\ud800\u0041")"), (Failure{.message = "unpaired surrogate in a string", .at = 13}));
  EXPECT_EQ(string_failure(R"("\udc00")"), (Failure{.message = "unpaired surrogate in a string", .at = 7}));
}

TEST(JsonScanner, WholeNumbersUseAll64Bits) {
  EXPECT_EQ(read_number("0"), 0);
  EXPECT_EQ(read_number(" 7 "), 7);
  EXPECT_EQ(read_number("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
}

TEST(JsonScanner, OtherNumbersAreNotWhole) {
  for (const char* text :
       {"18446744073709551616", "99999999999999999999", "-1", "-0", "00", "01", "1.5", "1e3", "1E3", "", "x"}) {
    EXPECT_EQ(read_number(text), std::nullopt) << text;
  }
}

TEST(JsonScanner, ValuesOfEveryKindAreSkipped) {
  for (const char* text : {"0", "-0", "-1.5e+10", "1E-5", "123456789012345678901234567890.123456789012345678901234567890", "true",
                           "false", "null", "\"x\"", "[]", "{}", "[1, [2], {\"a\": {}}]", " [ ] "}) {
    EXPECT_TRUE(skips(text)) << text;
  }
}

TEST(JsonScanner, MalformedNumbersAreRefused) {
  EXPECT_EQ(value_failure("-"), (Failure{.message = "expected a digit", .at = 1}));
  EXPECT_EQ(value_failure("-a"), (Failure{.message = "expected a digit", .at = 1}));
  EXPECT_EQ(value_failure("1."), (Failure{.message = "expected a digit", .at = 2}));
  EXPECT_EQ(value_failure("1.e5"), (Failure{.message = "expected a digit", .at = 2}));
  EXPECT_EQ(value_failure("1e"), (Failure{.message = "expected a digit", .at = 2}));
  EXPECT_EQ(value_failure("1e+"), (Failure{.message = "expected a digit", .at = 3}));
  EXPECT_EQ(value_failure("012"), (Failure{.message = "number with a leading zero", .at = 0}));
  EXPECT_EQ(value_failure(".5"), (Failure{.message = "expected a value", .at = 0}));
  EXPECT_EQ(value_failure("+1"), (Failure{.message = "expected a value", .at = 0}));
}

TEST(JsonScanner, NumbersTooLargeForADoubleAreRefused) {
  const Failure failure{.message = "number too large for a double", .at = 5};
  EXPECT_EQ(value_failure("1e309"), failure);
  EXPECT_EQ(value_failure("2e308"), failure);
  EXPECT_TRUE(skips("1.7e308"));
  EXPECT_TRUE(skips("1e-999999999999999999999"));
  EXPECT_TRUE(skips("0e999999999999999999999"));
  EXPECT_FALSE(skips("1e999999999999999999999"));
  EXPECT_TRUE(skips(std::string(300, '9')));
  EXPECT_FALSE(skips(std::string(310, '9')));
  EXPECT_TRUE(skips("0." + std::string(400, '0') + "1"));
}

TEST(JsonScanner, NestingStopsAt127) {
  EXPECT_TRUE(skips(std::string(127, '[') + std::string(127, ']')));
  EXPECT_EQ(value_failure(std::string(128, '[') + std::string(128, ']')),
            (Failure{.message = "values nested too deeply", .at = 127}));
}

TEST(JsonScanner, ObjectsNeedColonsCommasAndKeys) {
  EXPECT_EQ(value_failure(R"({"a" 1})"), (Failure{.message = "expected ':'", .at = 5}));
  EXPECT_EQ(value_failure(R"({"a":1 "b":2})"), (Failure{.message = "expected '}'", .at = 7}));
  EXPECT_EQ(value_failure(R"({a:1})"), (Failure{.message = "expected '\"'", .at = 1}));
  EXPECT_EQ(value_failure(R"({"a":1,})"), (Failure{.message = "expected '\"'", .at = 7}));
  EXPECT_EQ(value_failure(R"({"a":})"), (Failure{.message = "expected a value", .at = 5}));
  EXPECT_EQ(value_failure(R"({"a":1)"), (Failure{.message = "expected '}'", .at = 6}));
}

TEST(JsonScanner, ArraysNeedCommas) {
  EXPECT_EQ(value_failure("[1 2]"), (Failure{.message = "expected ']'", .at = 3}));
  EXPECT_EQ(value_failure("[1,]"), (Failure{.message = "expected a value", .at = 3}));
  EXPECT_EQ(value_failure("[,]"), (Failure{.message = "expected a value", .at = 1}));
  EXPECT_EQ(value_failure("["), (Failure{.message = "expected a value", .at = 1}));
}

TEST(JsonScanner, FirstFailureIsRecorded) {
  std::deque<std::string> decoded;
  JsonScanner scanner("  x", decoded);
  EXPECT_FALSE(scanner.take('{'));
  EXPECT_FALSE(scanner.fail("later"));
  EXPECT_EQ(scanner.failure(), "expected '{'");
  EXPECT_EQ(scanner.failed_at(), 2);
}

}  // namespace
}  // namespace ballast::safetensors
