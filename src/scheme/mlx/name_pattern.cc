#include "scheme/mlx/name_pattern.h"

#include <algorithm>
#include <charconv>

namespace ballast {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool match(std::string_view pattern, std::string_view name, MlxMatch& found) {
  while (!pattern.empty() && pattern.front() != '*' && pattern.front() != '#') {
    if (name.empty() || name.front() != pattern.front()) return false;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  if (pattern.empty()) return name.empty();
  if (pattern == "*") {
    found.texts.push_back(name);
    return true;
  }
  if (pattern.front() == '#') {
    const auto length = static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin());
    std::uint64_t number = 0;
    const char* const digits = name.data();
    if (std::from_chars(digits, digits + length, number).ec != std::errc() || length == 0) return false;
    found.number = number;
    return match(pattern.substr(1), name.substr(length), found);
  }
  for (std::size_t length = 0; length <= name.size(); ++length) {
    found.texts.push_back(name.substr(0, length));
    if (match(pattern.substr(1), name.substr(length), found)) return true;
    found.texts.pop_back();
  }
  return false;
}

}  // namespace

std::optional<MlxMatch> match_mlx_name(std::string_view pattern, std::string_view name) {
  MlxMatch found;
  if (!match(pattern, name, found)) return std::nullopt;
  return found;
}

std::string fill_mlx_name(std::string_view pattern, const MlxMatch& match) {
  std::string name;
  auto next = match.texts.begin();
  for (const char letter : pattern) {
    if (letter == '*') {
      name += *next++;
    } else {
      name += letter;
    }
  }
  return name;
}

}  // namespace ballast
