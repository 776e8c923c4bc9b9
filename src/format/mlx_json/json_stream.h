#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "format/mlx_json/text_window.h"

namespace ballast::mlx_json {

// Reads JSON tokens from front to back through a window. Besides RFC 8259 takes bare NaN, Infinity and -Infinity, which Python's
// json module writes. Values may nest kMaxDepth deep, and a number may have TextWindow::kMostKept characters.
//
// Each call skips white space, takes one token and returns true, or records the first failure and returns false.
class JsonStream {
 public:
  static constexpr int kMaxDepth = 127;

  // Strings that are kept may have `max_string` bytes.
  JsonStream(TextWindow& window, std::uint64_t max_string) : window_(window), max_string_(max_string) {}

  // The next character that is not white space, NUL at the end of the text.
  char peek();
  std::uint64_t position() const { return window_.position(window_.at()); }

  bool take(char expected);
  bool string(std::string& out);
  bool whole_number(std::uint64_t& out);
  bool skip_value(int depth);  // `depth` counts the values around this one
  bool skip_entry();           // a value of a tensor: a number, a string that stands for one, true or false
  bool at_end();               // true, or a failure: something follows

  // Skips at most `most` numbers, each with the comma behind it, and returns how many. Stops before what takes a longer look.
  std::uint64_t skip_numbers(std::uint64_t most);

  // Visits `{"key": value, …}`: after each key and colon calls member(key), which must take the value.
  template <class Member>
  bool object(Member&& member);
  // Visits `[value, …]`, calling element() to take each.
  template <class Element>
  bool array(Element&& element);

  bool fail(std::string message) { return fail_at(position(), std::move(message)); }
  bool fail_at(std::uint64_t position, std::string message);  // always false; keeps the first message and its position
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
