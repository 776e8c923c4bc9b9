#include "format/mlx_json/json_stream.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "base/text.h"
#include "format/mlx_json/values.h"

namespace ballast::mlx_json {
namespace {

using std::string_view_literals::operator""sv;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads eight characters at a time, possibly past the NUL; see TextWindow::kPadding.
const char* skip_digits(const char* at) {
  static_assert(std::endian::native == std::endian::little, "the first character is the lowest byte");
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  for (;; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    word ^= kOnes * '0';  // digits become 0 to 9; adding 0x76 leaves their top bit clear
    const std::uint64_t others = ((word + kOnes * 0x76) | word) & kOnes * 0x80;  // reliable up to the lowest set bit
    if (others != 0) return at + std::countr_zero(others) / 8;
  }
}

struct NumberScan {
  const char* stop;
  bool valid;
};

// Scans the number at `at` up to its end or to the first invalid character.
NumberScan scan_number(const char* at) {
  if (*at == '-') ++at;
  if (!is_digit(*at)) return {.stop = at, .valid = false};
  at = *at == '0' ? at + 1 : skip_digits(at);
  if (*at == '.') {
    if (!is_digit(*++at)) return {.stop = at, .valid = false};
    at = skip_digits(at);
  }
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '-' || *at == '+') ++at;
    if (!is_digit(*at)) return {.stop = at, .valid = false};
    at = skip_digits(at);
  }
  return {.stop = at, .valid = true};
}

}  // namespace

bool JsonStream::fail_at(std::uint64_t position, std::string message) {
  if (!failed_) failure_ = fmt::format("{} at byte {}", message, position);
  failed_ = true;
  return false;
}

bool JsonStream::fail_expecting(std::string_view what) {
  if (failed_ || !window_.at_end_of_text()) return fail(fmt::format("expected {}", what));
  failed_ = true;
  failure_ = fmt::format("the text ends at byte {}, expected {}", position(), what);
  return false;
}

// Calls keep(text) for each part of the string, with escapes decoded. The window must be at the opening quote.
template <class Keep>
bool JsonStream::scan_string(Keep&& keep) {
  window_.move_to(window_.at() + 1);
  std::string decoded;
  for (;;) {
    const char* at = window_.at();
    while (static_cast<unsigned char>(*at) >= 0x20 && static_cast<unsigned char>(*at) < 0x80 && *at != '"' && *at != '\\') ++at;
    if (!keep(std::string_view(window_.at(), at))) return false;
    window_.move_to(at);
    constexpr std::size_t kLongestSequence = 12;  // \ud83d\ude00
    window_.hold(kLongestSequence);
    at = window_.at();
    if (at == window_.end()) return fail_expecting("the end of a string");
    if (*at == '"') {
      window_.move_to(at + 1);
      return true;
    }
    if (*at == '\\') {
      decoded.clear();
      window_.move_to(at + 1);
      if (!scan_escape(decoded) || !keep(std::string_view(decoded))) return false;
    } else if (static_cast<unsigned char>(*at) < 0x20) {
      return fail("control character in a string");
    } else if (static_cast<unsigned char>(*at) >= 0x80) {
      const std::size_t length = utf8_length({at, window_.end()});
      if (length == 0) return fail("invalid UTF-8");
      if (!keep(std::string_view(at, length))) return false;
      window_.move_to(at + length);
    }
  }
}

bool JsonStream::scan_escape(std::string& out) {
  constexpr std::string_view kKinds = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char kind = *window_.at();
  if (const std::size_t known = kKinds.find(kind); kind != '\0' && known != std::string_view::npos) {
    out += kMeanings[known];
    window_.move_to(window_.at() + 1);
    return true;
  }
  if (kind != 'u') return fail("unknown escape in a string");
  std::uint32_t code = 0;
  if (!scan_hex4(code)) return false;
  if (code >= 0xd800 && code <= 0xdfff) {
    std::uint32_t low = 0;
    if (code >= 0xdc00 || !std::string_view(window_.at(), window_.end()).starts_with("\\u")) {
      return fail("unpaired surrogate in a string");
    }
    window_.move_to(window_.at() + 1);
    if (!scan_hex4(low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return fail("unpaired surrogate in a string");
    code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
  }
  append_utf8(out, code);
  return true;
}

// Reads the `u` of an escape and its four digits.
bool JsonStream::scan_hex4(std::uint32_t& out) {
  const char* const digits = window_.at() + 1;
  const char* const stop = digits + std::min<std::ptrdiff_t>(4, window_.end() - digits);
  if (stop - digits < 4 || std::from_chars(digits, stop, out, 16).ptr != stop) {
    return fail("\\u escape without four hexadecimal digits");
  }
  window_.move_to(stop);
  return true;
}

bool JsonStream::string(std::string& out) {
  if (peek() != '"') return fail_expecting("a string");
  const std::uint64_t start = position();
  return scan_string([&](std::string_view part) {
    if (part.size() > max_string_ - out.size()) return fail_at(start, fmt::format("string longer than {} bytes", max_string_));
    out += part;
    return true;
  });
}

bool JsonStream::whole_number(std::uint64_t& out) {
  if (!is_digit(peek())) return fail_expecting("a whole number");
  constexpr std::size_t kTooLong = 21;
  window_.hold(kTooLong);
  if (window_.at()[0] == '0' && is_digit(window_.at()[1])) return fail("number with a leading zero");
  const auto [stop, error] = std::from_chars(window_.at(), window_.end(), out);
  if (error != std::errc{}) return fail("number does not fit into 64 bits");
  if (*stop == '.' || *stop == 'e' || *stop == 'E') return fail("expected a whole number");
  window_.move_to(stop);
  return true;
}

bool JsonStream::skip_number() {
  NumberScan number = scan_number(window_.at());
  if (number.stop == window_.end()) {
    window_.hold(TextWindow::kMostKept + 1);
    number = scan_number(window_.at());
  }
  if (static_cast<std::size_t>(number.stop - window_.at()) > TextWindow::kMostKept) {
    return fail(fmt::format("number longer than {} characters", TextWindow::kMostKept));
  }
  window_.move_to(number.stop);
  return number.valid || fail_expecting("a digit");
}

bool JsonStream::skip_word(std::string_view word, std::string_view expected) {
  window_.hold(word.size());
  if (!std::string_view(window_.at(), window_.end()).starts_with(word)) return fail_expecting(expected);
  window_.move_to(window_.at() + word.size());
  return true;
}

// Skips a number or bare NaN, Infinity or -Infinity.
bool JsonStream::skip_bare_number(std::string_view expected) {
  const char first = peek();
  if (first == 'N') return skip_word("NaN", expected);
  if (first == 'I') return skip_word("Infinity", expected);
  if (first != '-' && !is_digit(first)) return fail_expecting(expected);
  window_.hold(2);
  return window_.at()[0] == '-' && window_.at()[1] == 'I' ? skip_word("-Infinity", expected) : skip_number();
}

bool JsonStream::skip_value(int depth) {
  constexpr std::string_view kExpected = "a value";
  const char first = peek();
  if ((first == '{' || first == '[') && depth >= kMaxDepth) return fail("values nested too deeply");
  const auto dropped = [](std::string_view) { return true; };
  switch (first) {
    case '[': return array([&] { return skip_value(depth + 1); });
    case '"': return scan_string(dropped);
    case 't': return skip_word("true", kExpected);
    case 'f': return skip_word("false", kExpected);
    case 'n': return skip_word("null", kExpected);
    case '{': break;
    default: return skip_bare_number(kExpected);
  }
  take('{');
  if (peek() == '}') return take('}');
  for (;;) {
    if (peek() != '"') return fail_expecting("a string");
    if (!scan_string(dropped) || !take(':') || !skip_value(depth + 1)) return false;
    if (peek() != ',') return take('}');
    take(',');
  }
}

bool JsonStream::skip_entry() {
  constexpr std::string_view kExpected = "a number";
  switch (peek()) {
    case '[': return fail("expected a number, found an array");
    case 't': return skip_word("true", kExpected);
    case 'f': return skip_word("false", kExpected);
    case '"': break;
    default: return skip_bare_number(kExpected);
  }
  constexpr std::size_t kLongestNan = R"("nan:7ff8000000000001")"sv.size();
  window_.hold(kLongestNan);
  const std::string_view text = std::string_view(window_.at(), window_.end()).substr(1, kLongestNan - 1);
  const std::size_t length = text.find('"');
  if (length == std::string_view::npos || !is_special(text.substr(0, length))) return fail_expecting(kExpected);
  window_.move_to(text.data() + length + 1);
  return true;
}

std::uint64_t JsonStream::skip_numbers(std::uint64_t most) {
  const char* at = window_.at();
  std::uint64_t count = 0;
  for (; count < most; ++count) {
    const NumberScan number = scan_number(at);
    const bool plain = number.valid && *number.stop == ',' && static_cast<std::size_t>(number.stop - at) <= TextWindow::kMostKept;
    if (!plain) break;
    at = skip_space(number.stop + 1);
  }
  window_.move_to(at);
  return count;
}

bool JsonStream::at_end() {
  peek();
  return window_.at_end_of_text() || fail("text after the closing brace");
}

}  // namespace ballast::mlx_json
