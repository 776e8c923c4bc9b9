#include "format/safetensors/json_scanner.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/text.h"

namespace ballast::safetensors {
namespace {

// Whether `digits` x 10^exponent is too large for the reference implementation. It multiplies in double precision instead of
// rounding once, so it also refuses a few numbers just below the true limit.
bool out_of_range(std::uint64_t digits, std::int64_t exponent) {
  if (digits == 0 || exponent <= 0) return false;
  if (exponent > 308) return true;
  double power = 0;
  const std::string text = fmt::format("1e{}", exponent);
  std::from_chars(text.data(), text.data() + text.size(), power);
  return std::isinf(static_cast<double>(digits) * power);
}

}  // namespace

bool JsonScanner::fail(std::string message) {
  if (failed_at_ == nullptr) {
    failure_ = std::move(message);
    failed_at_ = at_;
  }
  return false;
}

bool JsonScanner::fail_expecting(char character) { return fail(std::string("expected '") + character + "'"); }

bool JsonScanner::string_with_escapes(std::string_view& out) {
  std::string text;
  for (;;) {
    const char* const run = at_;
    at_ = find_special(at_, end_);
    text.append(run, at_);
    if (at_ == end_) return fail("unterminated string");
    if (*at_ == '"') break;
    if (*at_ != '\\') return fail("control character in a string");
    ++at_;
    if (!escape(text)) return false;
  }
  ++at_;
  out = decoded_->emplace_back(std::move(text));
  return true;
}

bool JsonScanner::escape(std::string& out) {
  if (at_ == end_) return fail("unterminated string");
  const char kind = *at_++;
  switch (kind) {
    case '"':
    case '\\':
    case '/': out.push_back(kind); return true;
    case 'b': out.push_back('\b'); return true;
    case 'f': out.push_back('\f'); return true;
    case 'n': out.push_back('\n'); return true;
    case 'r': out.push_back('\r'); return true;
    case 't': out.push_back('\t'); return true;
    case 'u': break;
    default: --at_; return fail("unknown escape in a string");
  }
  std::uint32_t code = 0;
  if (!hex4(code)) return false;
  if (code >= 0xdc00 && code <= 0xdfff) return fail("unpaired surrogate in a string");
  if (code >= 0xd800 && code <= 0xdbff) {
    std::uint32_t low = 0;
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return fail("unpaired surrogate in a string");
    at_ += 2;
    if (!hex4(low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return fail("unpaired surrogate in a string");
    code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
  }
  append_utf8(out, code);
  return true;
}

bool JsonScanner::hex4(std::uint32_t& out) {
  if (end_ - at_ < 4) return fail("unterminated string");
  const auto [stop, error] = std::from_chars(at_, at_ + 4, out, 16);
  if (error != std::errc{} || stop != at_ + 4) return fail("\\u escape without four hexadecimal digits");
  at_ += 4;
  return true;
}

bool JsonScanner::null() {
  peek();
  return literal("null");
}

bool JsonScanner::literal(std::string_view word) { return skip(word) || fail("expected a value"); }

bool JsonScanner::skip_number() {
  if (*at_ == '-') ++at_;
  if (at_ == end_ || !is_digit(*at_)) return fail("expected a digit");
  if (*at_ == '0' && end_ - at_ > 1 && is_digit(at_[1])) return fail("number with a leading zero");

  // Like the reference implementation: read digits until they overflow 64 bits, after that only count them.
  std::uint64_t digits = 0;
  std::int64_t exponent = 0;
  bool full = false;
  const auto take_digits = [&](std::int64_t kept, std::int64_t dropped) {
    const char* const start = at_;
    for (; at_ != end_ && is_digit(*at_); ++at_) {
      const auto shifted = full ? std::nullopt : checked_mul(digits, 10);
      const auto next = shifted ? checked_add(*shifted, static_cast<std::uint64_t>(*at_ - '0')) : std::nullopt;
      full = !next;
      if (next) digits = *next;
      exponent += next ? kept : dropped;
    }
    return at_ != start;
  };
  take_digits(0, 1);
  if (at_ != end_ && *at_ == '.') {
    ++at_;
    full = false;
    if (!take_digits(-1, 0)) return fail("expected a digit");
  }
  if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (!take_exponent(exponent)) return false;
  }
  return !out_of_range(digits, exponent) || fail("number too large for a double");
}

bool JsonScanner::take_exponent(std::int64_t& exponent) {
  constexpr std::int64_t kFar = 1'000'000'000'000;
  const bool negative = at_ != end_ && *at_ == '-';
  if (at_ != end_ && (*at_ == '-' || *at_ == '+')) ++at_;
  if (at_ == end_ || !is_digit(*at_)) return fail("expected a digit");
  std::int64_t power = 0;
  for (; at_ != end_ && is_digit(*at_); ++at_) power = std::min(power * 10 + (*at_ - '0'), kFar);
  exponent += negative ? -power : power;
  return true;
}

bool JsonScanner::skip_value(int depth) {
  const char first = peek();
  if ((first == '{' || first == '[') && depth >= kMaxDepth) return fail("values nested too deeply");
  switch (first) {
    case '{': return object([&](std::string_view) { return skip_value(depth + 1); });
    case '[': return array([&] { return skip_value(depth + 1); });
    case '"': {
      std::string_view ignored;
      return string(ignored);
    }
    case 't': return literal("true");
    case 'f': return literal("false");
    case 'n': return literal("null");
    default: return first == '-' || is_digit(first) ? skip_number() : fail("expected a value");
  }
}

bool JsonScanner::at_end() {
  peek();
  return at_ == end_ || fail("text after the closing brace");
}

}  // namespace ballast::safetensors
