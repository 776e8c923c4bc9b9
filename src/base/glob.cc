#include <ballast/glob.h>

#include <optional>

namespace ballast {
namespace {

struct Step {
  bool matches;
  std::size_t length;  // of the element in the pattern
};

// Matches one byte against the element at the front of `pattern`, which is not `*`. An unclosed `[` matches itself.
Step match_one(std::string_view pattern, char c) {
  if (pattern.front() == '?') return {.matches = true, .length = 1};
  const std::size_t negated = pattern.starts_with("[!") || pattern.starts_with("[^") ? 1 : 0;
  const std::size_t close = pattern.find(']', 2 + negated);
  if (pattern.front() != '[' || close == std::string_view::npos) return {.matches = pattern.front() == c, .length = 1};

  const auto byte = [](char ch) { return static_cast<unsigned char>(ch); };
  const std::string_view set = pattern.substr(1 + negated, close - 1 - negated);
  bool found = false;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (byte(set[i]) <= byte(c) && byte(c) <= byte(set[i + 2]));
      i += 2;
    } else {
      found = found || set[i] == c;
    }
  }
  return {.matches = found != (negated == 1), .length = close + 1};
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  struct Retry {
    std::string_view pattern;
    std::string_view text;
  };
  std::optional<Retry> retry;  // where to go back to: only the last `*` ever needs to match more
  for (;;) {
    if (!pattern.empty() && pattern.front() == '*') {
      pattern.remove_prefix(1);
      retry = {.pattern = pattern, .text = text};
      continue;
    }
    if (pattern.empty() && text.empty()) return true;
    if (!pattern.empty() && !text.empty()) {
      const Step step = match_one(pattern, text.front());
      if (step.matches) {
        pattern.remove_prefix(step.length);
        text.remove_prefix(1);
        continue;
      }
    }
    if (!retry || retry->text.empty()) return false;
    retry->text.remove_prefix(1);
    pattern = retry->pattern;
    text = retry->text;
  }
}

}  // namespace ballast
