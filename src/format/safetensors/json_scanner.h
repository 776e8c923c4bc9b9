#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>

namespace ballast::safetensors {

// Reads JSON tokens in order. Accepts what serde_json, the parser of the reference implementation, accepts: RFC 8259, at most 127
// nested values, no number too large for a double. The text must be valid UTF-8.
//
// Each call skips white space and consumes one token. It returns true, or records the first failure and returns false.
class JsonScanner {
 public:
  static constexpr int kMaxDepth = 127;

  // Strings with escapes are decoded into `decoded`; all others are views into `text`.
  JsonScanner(std::string_view text, std::deque<std::string>& decoded)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()), decoded_(&decoded) {}

  // For rewind().
  const char* position() const { return at_; }
  void rewind(const char* position) { at_ = position; }

  // The next character that is not white space; NUL at the end of the text.
  char peek();

  bool take(char expected);
  bool skip(std::string_view exactly);  // consumes exactly these characters if they are next; false is not a failure
  bool string(std::string_view& out);
  bool whole_number(std::uint64_t& out);
  bool null();
  bool skip_value(int depth);  // `depth` is the number of enclosing values
  bool at_end();               // fails if there is more text

  // Visits `{"key": value, …}`. Calls member(key) after each key and colon; it must consume the value.
  template <class Member>
  bool object(Member&& member);
  // The same, starting after one of the members.
  template <class Member>
  bool rest_of_object(Member&& member);
  // Visits `[value, …]`. Calls element() for each value; it must consume it.
  template <class Element>
  bool array(Element&& element);

  [[gnu::cold]] bool fail(std::string message);  // returns false; records the first message and its position
  bool failed() const { return failed_at_ != nullptr; }
  const std::string& failure() const { return failure_; }
  std::size_t failed_at() const { return static_cast<std::size_t>(failed_at_ - begin_); }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static const char* find_special(const char* at, const char* end);

  [[gnu::cold]] bool fail_expecting(char character);
  template <class Member>
  bool members(Member&& member);  // starts at a key
  bool string_with_escapes(std::string_view& out);
  bool escape(std::string& out);
  bool hex4(std::uint32_t& out);
  bool literal(std::string_view word);
  bool skip_number();
  bool take_exponent(std::int64_t& exponent);  // adds the number after an `e`

  const char* begin_;
  const char* at_;
  const char* end_;
  std::deque<std::string>* decoded_;
  std::string failure_;
  const char* failed_at_ = nullptr;
};

inline char JsonScanner::peek() {
  if (at_ != end_ && *at_ > ' ') [[likely]]
    return *at_;
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  return at_ == end_ ? '\0' : *at_;
}

inline bool JsonScanner::take(char expected) {
  if (peek() != expected) return fail_expecting(expected);
  ++at_;
  return true;
}

inline bool JsonScanner::skip(std::string_view exactly) {
  if (!std::string_view(at_, end_).starts_with(exactly)) return false;
  at_ += exactly.size();
  return true;
}

// The first byte in [at, end) that ends a string or needs care: a quote, a backslash or a control character.
inline const char* JsonScanner::find_special(const char* at, const char* end) {
  static_assert(std::endian::native == std::endian::little, "reads eight bytes at a time, lowest first");
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHighs = 0x8080808080808080;
  for (; end - at >= 8; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    const std::uint64_t quote = word ^ (kOnes * '"');
    const std::uint64_t slash = word ^ (kOnes * '\\');
    // Only the lowest set bit is reliable; a borrow can set wrong bits above it.
    const std::uint64_t hits =
        (((word - kOnes * 0x20) & ~word) | ((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash)) & kHighs;
    if (hits != 0) return at + std::countr_zero(hits) / 8;
  }
  while (at != end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
  return at;
}

inline bool JsonScanner::string(std::string_view& out) {
  if (!take('"')) return false;
  const char* const stop = find_special(at_, end_);
  if (stop == end_ || *stop != '"') return string_with_escapes(out);
  out = {at_, stop};
  at_ = stop + 1;
  return true;
}

inline bool JsonScanner::whole_number(std::uint64_t& out) {
  const char first = peek();
  if (!is_digit(first)) return fail("expected a whole number");
  std::uint64_t value = 0;
  const char* stop = at_;
  for (; stop != end_ && is_digit(*stop); ++stop) value = value * 10 + static_cast<std::uint64_t>(*stop - '0');
  const std::string_view digits(at_, stop);
  at_ = stop;
  constexpr std::string_view kMost = "18446744073709551615";
  if (digits.size() >= kMost.size() && (digits.size() > kMost.size() || digits > kMost))
    return fail("number does not fit into 64 bits");
  if (first == '0' && digits.size() > 1) return fail("number with a leading zero");
  if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return fail("expected a whole number");
  out = value;
  return true;
}

template <class Member>
bool JsonScanner::object(Member&& member) {
  if (!take('{')) return false;
  return peek() == '}' ? take('}') : members(member);
}

template <class Member>
bool JsonScanner::rest_of_object(Member&& member) {
  if (peek() != ',') return take('}');
  ++at_;
  return members(member);
}

template <class Member>
bool JsonScanner::members(Member&& member) {
  for (;;) {
    std::string_view key;
    if (!string(key) || !take(':') || !member(key)) return false;
    if (peek() != ',') return take('}');
    ++at_;
  }
}

template <class Element>
bool JsonScanner::array(Element&& element) {
  if (!take('[')) return false;
  if (peek() == ']') return take(']');
  for (;;) {
    if (!element()) return false;
    if (peek() != ',') return take(']');
    ++at_;
  }
}

}  // namespace ballast::safetensors
