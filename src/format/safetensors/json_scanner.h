#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace ballast::safetensors {

// Reads JSON tokens from front to back, accepting what serde_json, the reference's reader, accepts: RFC 8259, at most 127
// values deep, no number past the range of a double. The text must be valid UTF-8.
//
// Each call skips white space, takes one token and returns true, or records the first failure and returns false.
class JsonScanner {
 public:
  static constexpr int kMaxDepth = 127;

  // Strings that hold escapes are decoded into `decoded`; all others are views of `text`.
  JsonScanner(std::string_view text, std::deque<std::string>& decoded)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()), decoded_(&decoded) {}

  // The next character that is not white space, NUL at the end of the text.
  char peek();

  bool take(char expected);
  bool string(std::string_view& out);
  bool whole_number(std::uint64_t& out);
  bool null();
  bool skip_value(int depth);  // `depth` counts the values around this one
  bool at_end();               // true, or a failure: something follows

  // Visits `{"key": value, …}`: after each key and colon calls member(key), which must take the value.
  template <class Member>
  bool object(Member&& member);
  // Visits `[value, …]`, calling element() to take each.
  template <class Element>
  bool array(Element&& element);

  bool fail(std::string message);  // always false; keeps the first message and the position
  const std::string& failure() const { return failure_; }
  std::size_t failed_at() const { return static_cast<std::size_t>(failed_at_ - begin_); }

 private:
  bool string_with_escapes(const char* start, std::string_view& out);
  bool escape(std::string& out);
  bool hex4(std::uint32_t& out);
  bool literal(std::string_view word);
  bool skip_number();

  const char* begin_;
  const char* at_;
  const char* end_;
  std::deque<std::string>* decoded_;
  std::string failure_;
  const char* failed_at_ = nullptr;
};

inline char JsonScanner::peek() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  return at_ == end_ ? '\0' : *at_;
}

inline bool JsonScanner::take(char expected) {
  if (peek() != expected) return fail(std::string("expected '") + expected + "'");
  ++at_;
  return true;
}

template <class Member>
bool JsonScanner::object(Member&& member) {
  if (!take('{')) return false;
  if (peek() == '}') return take('}');
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
