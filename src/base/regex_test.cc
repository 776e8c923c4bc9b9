#include "base/regex.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;

TEST(Regex, MatchesAnyPart) {
  const auto regex = Regex::compile(R"(layers\.[0-3]\.)");
  ASSERT_TRUE(regex) << regex.error().message;
  EXPECT_TRUE(regex->found_in("model.layers.2.mlp"));
  EXPECT_FALSE(regex->found_in("model.layers.4.mlp"));
  EXPECT_FALSE(regex->found_in(""));
}

TEST(Regex, AnchorsMatchOnlyAtTheEnds) {
  const auto regex = Regex::compile("^lm_head$");
  ASSERT_TRUE(regex) << regex.error().message;
  EXPECT_TRUE(regex->found_in("lm_head"));
  EXPECT_FALSE(regex->found_in("lm_head.weight"));
}

TEST(Regex, ErrorSaysWhatIsWrong) {
  EXPECT_TRUE(fails(Regex::compile("(a"), Errc::kInvalidArgument, "'(a' is not a valid regular expression: missing ): (a"));
  EXPECT_TRUE(fails(Regex::compile("*"), Errc::kInvalidArgument,
                    "'*' is not a valid regular expression: no argument for repetition operator: *"));
  EXPECT_TRUE(fails(Regex::compile(R"((a)\1)"), Errc::kInvalidArgument,
                    R"('(a)\\1' is not a valid regular expression: invalid escape sequence: \\1)"));
  EXPECT_TRUE(
      fails(Regex::compile("\xff"), Errc::kInvalidArgument, R"('\xff' is not a valid regular expression: invalid UTF-8)"));
}

TEST(Regex, TooLargeIsAnError) {
  EXPECT_TRUE(fails(Regex::compile("((a{100}){100}){100}"), Errc::kInvalidArgument,
                    "'((a{100}){100}){100}' is not a valid regular expression: invalid repetition size: {100}"));
  const auto large = Regex::compile(R"(\pL{1000})");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message, R"('\\pL{1000}' is not a valid regular expression: pattern too large - compile failed)");
}

// A backtracking matcher would take exponential time.
TEST(Regex, MatchesInLinearTime) {
  const auto regex = Regex::compile("^(a+)+$");
  ASSERT_TRUE(regex) << regex.error().message;
  EXPECT_FALSE(regex->found_in(std::string(100'000, 'a') + "b"));
}

}  // namespace
}  // namespace ballast
