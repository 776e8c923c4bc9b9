#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "format/mlx_json/text_window.h"

namespace ballast::mlx_json {

// Reads JSON tokens in order through a window. Accepts RFC 8259 and the bare NaN, Infinity and -Infinity that Python's json
// module writes. At most kMaxDepth nested values; at most TextWindow::kMostKept characters per number.
//
// Each call skips white space and consumes one token. It returns true, or records the first failure and returns false.
class JsonStream {
 public:
  static constexpr int kMaxDepth = 127;

  // string() accepts at most `max_string` bytes.
  JsonStream(TextWindow& window, std::uint64_t max_string) : window_(window), max_string_(max_string) {}

  // The next character that is not white space; NUL at the end of the text.
  char peek();
  std::uint64_t position() const { return window_.position(window_.at()); }

  bool take(char expected);
  bool string(std::string& out);
  bool whole_number(std::uint64_t& out);
  bool skip_value(int depth);  // `depth` is the number of enclosing values
  bool skip_entry();           // a value of a tensor: a number, a string such as "NaN", true or false
  bool at_end();               // fails if there is more text

  // Skips up to `most` numbers with the comma after each and returns how many. Stops before anything that needs skip_entry().
  std::uint64_t skip_numbers(std::uint64_t most);

  // Visits `{"key": value, …}`. Calls member(key) after each key and colon; it must consume the value.
  template <class Member>
  bool object(Member&& member);
  // Visits `[value, …]`. Calls element() for each value; it must consume it.
  template <class Element>
  bool array(Element&& element);

  bool fail(std::string message) { return fail_at(position(), std::move(message)); }
  bool fail_at(std::uint64_t position, std::string message);  // returns false; records the first message and its position
  bool fail_expecting(std::string_view what);
  bool failed() const { return failed_; }
  const std::string& failure() const { return failure_; }  // "… at byte 57"

 private:
  template <class Keep>
  bool scan_string(Keep&& keep);
  bool scan_escape(std::string& out);
  bool scan_hex4(std::uint32_t& out);
  bool skip_number();
  bool skip_bare_number(std::string_view expected);
  bool skip_word(std::string_view word, std::string_view expected);

  TextWindow& window_;
  std::uint64_t max_string_;
  std::string failure_;
  bool failed_ = false;
};

inline char JsonStream::peek() {
  for (;;) {
    window_.move_to(skip_space(window_.at()));
    if (window_.at() != window_.end() || !window_.slide()) return *window_.at();
  }
}

inline bool JsonStream::take(char expected) {
  if (peek() != expected || window_.at() == window_.end()) return fail_expecting(std::string{'\'', expected, '\''});
  window_.move_to(window_.at() + 1);
  return true;
}

template <class Member>
bool JsonStream::object(Member&& member) {
  if (!take('{')) return false;
  if (peek() == '}') return take('}');
  std::string key;
  for (;;) {
    key.clear();
    if (!string(key) || !take(':') || !member(std::as_const(key))) return false;
    if (peek() != ',') return take('}');
    take(',');
  }
}

template <class Element>
bool JsonStream::array(Element&& element) {
  if (!take('[')) return false;
  if (peek() == ']') return take(']');
  for (;;) {
    if (!element()) return false;
    if (peek() != ',') return take(']');
    take(',');
  }
}

}  // namespace ballast::mlx_json
