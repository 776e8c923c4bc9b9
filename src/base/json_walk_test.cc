#include "base/json_walk.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

std::vector<std::string> walk(std::string_view text) {
  std::vector<std::string> seen;
  JsonWalk walk(text);
  for (JsonWalk::Token token{}; walk.next(token);) {
    constexpr std::string_view kKinds = "ks.<>";
    seen.push_back(std::string(1, kKinds[static_cast<std::size_t>(token.kind)]) + std::to_string(walk.depth()) + " " +
                   std::string(walk.section()) + "/" + std::string(walk.key()) + " " +
                   std::string(text.substr(token.begin, token.end - token.begin)));
  }
  return seen;
}

TEST(JsonWalk, TellsKeysFromStringsAndKnowsWhereItIs) {
  EXPECT_EQ(walk(R"( {"a" : "b,\"}", "c":{"d":[ "e", {"f":1e5} ,null]} , "g":true})"),
            (std::vector<std::string>{"<1 / {", R"(k1 /a "a")", R"(s1 /a "b,\"}")", R"(k1 /c "c")", "<2 c/ {", R"(k2 c/d "d")",
                                      "<3 d/ [", R"(s3 d/ "e")", "<4 / {", R"(k4 /f "f")", ".4 /f 1e5", ">3 d/ }", ".3 d/ null",
                                      ">2 c/d ]", ">1 /c }", R"(k1 /g "g")", ".1 /g true", ">0 / }"}));
}

TEST(JsonWalk, NeverLeavesBrokenText) {
  for (const char* text : {"", "\"", "\"\\", "{", "}", "]]", "{\"a", "{\"a\":", ",,", "1"}) walk(text);
}

}  // namespace
}  // namespace ballast
