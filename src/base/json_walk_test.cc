#include "base/json_walk.h"

#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

std::vector<std::string> walk(std::string_view text) {
  std::vector<std::string> seen;
  JsonWalk walk(text);
  for (JsonWalk::Token token{}; walk.next(token);) {
    constexpr std::string_view kKinds = "ks.<>";
    seen.push_back(std::string(1, kKinds[static_cast<std::size_t>(token.kind)]) + std::to_string(walk.depth()) + " " +
                   fmt::format("{}", fmt::join(walk.sections(), ".")) + "/" + std::string(walk.key()) + " " +
                   std::string(text.substr(token.begin, token.end - token.begin)));
  }
  return seen;
}

TEST(JsonWalk, TellsKeysFromStringsAndReportsThePosition) {
  EXPECT_EQ(
      walk(R"( {"a" : "b,\"}", "c":{"d":[ "e", {"f":1e5} ,null]} , "g":true})"),
      (std::vector<std::string>{"<1 / {", R"(k1 /a "a")", R"(s1 /a "b,\"}")", R"(k1 /c "c")", "<2 c/ {", R"(k2 c/d "d")",
                                "<3 c.d/ [", R"(s3 c.d/ "e")", "<4 c.d./ {", R"(k4 c.d./f "f")", ".4 c.d./f 1e5", ">3 c.d/ }",
                                ".3 c.d/ null", ">2 c/d ]", ">1 /c }", R"(k1 /g "g")", ".1 /g true", ">0 / }"}));
  EXPECT_EQ(walk("\xef\xbb\xbf[]"), (std::vector<std::string>{"<1 / [", ">0 / ]"}));
}

TEST(JsonWalk, StaysWithinMalformedText) {
  for (const char* text : {"", "\"", "\"\\", "{", "}", "]]", "{\"a", "{\"a\":", ",,", "1"}) walk(text);
}

}  // namespace
}  // namespace ballast
