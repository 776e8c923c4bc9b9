#include "base/similar_name.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

std::string best(std::string_view name, const std::vector<std::string_view>& known) {
  SimilarName similar(name);
  for (const std::string_view each : known) similar.offer(each);
  return std::string(similar.best());
}

TEST(SimilarNameTest, FindsTheNameWithTheFewestEdits) {
  EXPECT_EQ(best("model.norm.wieght", {"model.norm.bias", "model.norm.weight", "lm_head.weight"}), "model.norm.weight");
  EXPECT_EQ(best("layers.10.up", {"layers.1.up", "layers.11.up", "layers.100.up"}), "layers.1.up");
  EXPECT_EQ(best("abcdef", {"abcdxy", "abcdeg"}), "abcdeg");
}

TEST(SimilarNameTest, FindsNothingWhereAThirdOfTheNameDiffers) {
  EXPECT_EQ(best("abcdef", {"abcxyz"}), "");
  EXPECT_EQ(best("ab", {"ac", "abc"}), "");
  EXPECT_EQ(best("", {"a", "a.b", ""}), "");
  EXPECT_EQ(best("nothing", {}), "");
}

TEST(SimilarNameTest, PrefersANameThatDiffersByAPrefix) {
  EXPECT_EQ(best("norm.weight", {"norm.weighs", "model.norm.weight", "other.norm.weight"}), "model.norm.weight");
  EXPECT_EQ(best("model.norm.weight", {"model.norm.weighs", "norm.weight"}), "norm.weight");
  EXPECT_EQ(best("norm.weight", {"enorm.weight"}), "enorm.weight");
  EXPECT_EQ(best("fc.weight", {"bias", "weight"}), "weight");
  EXPECT_EQ(best("weight", {"model.norm.weight"}), "");  // which many names end with
}

TEST(SimilarNameTest, TakesALimit) {
  SimilarName similar("bit_widht", 1);
  similar.offer("bit_width");
  EXPECT_EQ(similar.best(), "");
}

TEST(SimilarNameTest, QuotesTheNameInAMessage) {
  struct Named {
    std::string_view name;
  };
  EXPECT_EQ(did_you_mean("layer'", std::vector<Named>{{"layer\n"}}), R"(; did you mean 'layer\n'?)");
  EXPECT_EQ(did_you_mean("layer", std::vector<Named>{{"other"}}), "");
}

}  // namespace
}  // namespace ballast
