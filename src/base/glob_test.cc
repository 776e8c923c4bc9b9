#include <ballast/glob.h>

#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(Glob, PlainTextMatchesOnlyItself) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_TRUE(glob_match("lm_head.weight", "lm_head.weight"));
  EXPECT_FALSE(glob_match("lm_head.weight", "lm_head.weight2"));
  EXPECT_FALSE(glob_match("lm_head.weight", "lm_head"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_FALSE(glob_match("a", "A"));
}

TEST(Glob, StarMatchesAnyRunIncludingDots) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*", "model.layers.0"));
  EXPECT_TRUE(glob_match("*.weight", "model.layers.0.weight"));
  EXPECT_TRUE(glob_match("model.*.mlp.*", "model.layers.0.mlp.up"));
  EXPECT_TRUE(glob_match("*a*b*", "xxaxxbxb"));
  EXPECT_TRUE(glob_match("a**", "a"));
  EXPECT_FALSE(glob_match("*.weight", "model.bias"));
  EXPECT_FALSE(glob_match("*a", "ab"));
}

TEST(Glob, QuestionMarkMatchesOneByte) {
  EXPECT_TRUE(glob_match("layers.?.w", "layers.7.w"));
  EXPECT_FALSE(glob_match("layers.?.w", "layers.17.w"));
  EXPECT_FALSE(glob_match("?", ""));
}

TEST(Glob, SetsMatchOneOfTheirBytes) {
  EXPECT_TRUE(glob_match("[qkv]_proj", "k_proj"));
  EXPECT_FALSE(glob_match("[qkv]_proj", "o_proj"));
  EXPECT_TRUE(glob_match("[0-9]", "5"));
  EXPECT_FALSE(glob_match("[0-9]", "a"));
  EXPECT_TRUE(glob_match("[a-cx-z]", "y"));
  EXPECT_TRUE(glob_match("[a-]", "-"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_TRUE(glob_match("[\x80-\xff]", "\xc3"));
}

TEST(Glob, NegatedSetsMatchAnyOtherByte) {
  EXPECT_TRUE(glob_match("[!qk]", "v"));
  EXPECT_FALSE(glob_match("[!qk]", "q"));
  EXPECT_TRUE(glob_match("[^qk]", "v"));
  EXPECT_FALSE(glob_match("[!]]", "]"));
  EXPECT_FALSE(glob_match("[!a]", ""));
}

TEST(Glob, UnclosedBracketMatchesItself) {
  EXPECT_TRUE(glob_match("[ab", "[ab"));
  EXPECT_TRUE(glob_match("[", "["));
  EXPECT_FALSE(glob_match("[ab", "a"));
}

TEST(Glob, ManyStarsAreNotExponential) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(2000, 'a')));
  EXPECT_TRUE(glob_match(pattern, std::string(2000, 'a')));
}

}  // namespace
}  // namespace ballast
