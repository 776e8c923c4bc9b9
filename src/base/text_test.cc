#include "base/text.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

using namespace std::string_view_literals;

TEST(Escape, PrintableTextIsLeftAlone) {
  EXPECT_EQ(escape(""), "");
  EXPECT_EQ(escape("model.layers.0.weight"), "model.layers.0.weight");
  EXPECT_EQ(escape("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80"), "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Escape, TerminalEscapesAndControlsAreSpelledOut) {
  EXPECT_EQ(escape("\x1b[31mred\x1b[0m"), R"(\x1b[31mred\x1b[0m)");
  EXPECT_EQ(escape("a\0b\n\r\t\x7f\b"sv), R"(a\x00b\n\r\t\x7f\x08)");
  EXPECT_EQ(escape("\xc2\x9b"), R"(\x9b)");
}

TEST(Escape, QuotesAndBackslashesAreSpelledOut) { EXPECT_EQ(escape(R"('"\)"), R"(\'\"\\)"); }

TEST(Escape, InvisibleAndDirectionChangingCharactersAreSpelledOut) {
  EXPECT_EQ(escape("\xe2\x80\xae"), R"(\u202e)");
  EXPECT_EQ(escape("\xe2\x81\xa6"), R"(\u2066)");
  EXPECT_EQ(escape("\xe2\x80\x8b"), R"(\u200b)");
  EXPECT_EQ(escape("\xe2\x80\xa8"), R"(\u2028)");
  EXPECT_EQ(escape("\xd8\x9c"), R"(\u061c)");
  EXPECT_EQ(escape("\xef\xbb\xbf"), R"(\ufeff)");
  EXPECT_EQ(escape("\xc2\xad"), R"(\xad)");
  EXPECT_EQ(escape("\xf3\xa0\x81\x81"), R"(\U000e0041)");
}

TEST(Escape, BytesThatAreNotUtf8AreSpelledOut) {
  EXPECT_EQ(escape("a\xff\xfe z"), R"(a\xff\xfe z)");
  EXPECT_EQ(escape("\xc3"), R"(\xc3)");
  EXPECT_EQ(escape("\xed\xa0\x80"), R"(\xed\xa0\x80)");
}

TEST(Lowercase, ConvertsAsciiLettersOnly) { EXPECT_EQ(lowercase("AZaz[@É1"), "azaz[@É1"); }

TEST(Trimmed, StripsWhitespaceAtBothEnds) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Utf8Length, CountsOneCharacter) {
  EXPECT_EQ(utf8_length("abc"), 1);
  EXPECT_EQ(utf8_length("\xc3\xa9!"), 2);
  EXPECT_EQ(utf8_length("\xe2\x82\xac"), 3);
  EXPECT_EQ(utf8_length("\xf4\x8f\xbf\xbf"), 4);
}

TEST(Utf8Length, IsZeroForAnythingElse) {
  for (const auto text : {""sv, "\x80"sv, "\xc0\x80"sv, "\xc1\xbf"sv, "\xe0\x9f\xbf"sv, "\xf0\x8f\xbf\xbf"sv, "\xed\xa0\x80"sv,
                          "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv, "\xc3"sv, "\xe2\x82"sv, "\xe2\x28\xa1"sv, "\xff"sv}) {
    EXPECT_EQ(utf8_length(text), 0) << escape(text);
  }
}

TEST(Quote, EscapesWhatItQuotes) {
  EXPECT_EQ(quote("weight"), "'weight'");
  EXPECT_EQ(quote("it's\n"), R"('it\'s\n')");
}

TEST(Quote, NamesOfUpTo200BytesAreWhole) { EXPECT_EQ(quote(std::string(200, 'a')), "'" + std::string(200, 'a') + "'"); }

TEST(Quote, LongerNamesAreShortenedInTheMiddle) {
  EXPECT_EQ(quote(std::string(150, 'a') + std::string(150, 'b')),
            "'" + std::string(100, 'a') + "…" + std::string(50, 'b') + "' (300 bytes)");
}

TEST(Quote, CutsBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 101; ++i) name += "\xe2\x82\xac";
  std::string head;
  for (int i = 0; i < 33; ++i) head += "\xe2\x82\xac";
  std::string tail;
  for (int i = 0; i < 16; ++i) tail += "\xe2\x82\xac";
  EXPECT_EQ(quote(name), "'" + head + "…" + tail + "' (303 bytes)");
}

TEST(Quote, CutSurvivesBytesThatNeverStartACharacter) {
  const std::string name(300, '\x80');
  EXPECT_EQ(quote(name), "'…' (300 bytes)");
}

TEST(ShapeToString, ListsDimensions) {
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_EQ(to_string(std::array<std::uint64_t, 2>{2, 3}), "[2, 3]");
}

TEST(ShapeToString, CutsLongShapes) {
  EXPECT_EQ(to_string(std::vector<std::uint64_t>(17, 1)), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … 17 dims]");
}

}  // namespace
}  // namespace ballast
