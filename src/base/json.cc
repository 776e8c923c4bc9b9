#include "base/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>

#include "base/fail.h"
#include "base/text.h"

namespace ballast {
namespace {

constexpr std::size_t kMostDigits = 18;  // any number of 18 digits fits into 64 bits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t string_length(std::string_view text) {
  std::size_t at = 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

std::size_t number_length(std::string_view text) {
  const auto in_number = [](char c) { return is_digit(c) || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E'; };
  return static_cast<std::size_t>(std::ranges::find_if_not(text, in_number) - text.begin());
}

std::string from_python(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"NaN", "Infinity", "-Infinity"};
  std::string out;
  out.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  while (!text.empty()) {
    std::size_t length = 1;
    std::string_view suffix;
    const auto word = std::ranges::find_if(kWords, [&](std::string_view w) { return text.starts_with(w); });
    if (word != kWords.end()) {
      out += '"';
      suffix = "\"";
      length = word->size();
    } else if (text.front() == '"') {
      length = string_length(text);
    } else if (is_digit(text.front())) {
      length = number_length(text);
      if (length > kMostDigits && std::ranges::all_of(text.substr(0, length), is_digit)) suffix = ".0";
    }
    out.append(text.substr(0, length)).append(suffix);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  simdjson::dom::element root;
  if (const auto error = parser.parse(from_python(text)).get(root)) {
    if (text.starts_with("version https://git-lfs")) {
      return fail(Errc::kCorrupt, "not JSON; this is a Git LFS pointer: not downloaded; run `git lfs pull` in its repository");
    }
    return fail(Errc::kCorrupt, "invalid JSON: {}", simdjson::error_message(error));
  }
  return root;
}

std::optional<std::int64_t> whole_number(simdjson::dom::element value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  std::int64_t integer = 0;
  if (value.get(integer) == simdjson::SUCCESS) return integer;
  double real = 0;
  if (value.get(real) != simdjson::SUCCESS || std::abs(real) > kExact || real != std::floor(real)) return std::nullopt;
  return static_cast<std::int64_t>(real);
}

std::string describe(simdjson::dom::element value) {
  constexpr std::size_t kLongest = 80;
  std::string_view text;
  const bool is_string = value.get(text) == simdjson::SUCCESS;
  std::string shown = is_string ? std::string(text) : simdjson::to_string(value);
  if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + "…";
  return is_string ? quote(shown) : escape(shown);
}

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const auto stop =
        std::ranges::find_if(text, [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; });
    const auto plain = static_cast<std::size_t>(stop - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    if (const std::size_t at = kNamed.find(text.front()); at != std::string_view::npos) {
      out += '\\';
      out += kLetters[at];
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(text.front()));
    }
    text.remove_prefix(1);
  }
  out += '"';
}

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

}  // namespace ballast
