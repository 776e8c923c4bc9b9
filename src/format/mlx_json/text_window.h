#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <ballast/error.h>

#include "source/source.h"

namespace ballast::mlx_json {

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The text must end with NUL.
inline const char* skip_space(const char* at) {
  while (is_space(*at)) ++at;
  return at;
}

// A sliding window over a text, so that a text of any size is read in constant memory. [at(), end()) is in memory, followed by
// kPadding NUL bytes, so that loops over the text need not check for the end.
class TextWindow {
 public:
  static constexpr std::size_t kPadding = 8;
  static constexpr std::size_t kPiece = std::size_t{256} << 10;  // bytes per read
  static constexpr std::size_t kMostKept = 4096;                 // the longest token that always fits into the window

  // Starts empty, at byte `begin` of the text.
  TextWindow(const Source& text, std::uint64_t begin, std::uint64_t end, std::size_t piece = kPiece);

  const char* at() const { return at_; }
  const char* end() const { return end_; }
  void move_to(const char* at) { at_ = at; }
  std::uint64_t position(const char* at) const { return next_ - static_cast<std::uint64_t>(end_ - at); }

  // Drops the text before at() and reads the next piece. Pointers into the window become invalid. Returns false at the end of the
  // text, if more than kMostKept bytes would have to be kept, and if reading fails.
  bool slide();

  // Slides until the window has `bytes` or the text ends.
  bool hold(std::size_t bytes) {
    while (static_cast<std::size_t>(end_ - at_) < bytes) {
      if (!slide()) return false;
    }
    return true;
  }

  bool at_end_of_text() const { return at_ == end_ && next_ == stop_; }
  const std::optional<Error>& error() const { return error_; }  // of reading

 private:
  const Source& text_;
  std::uint64_t next_;  // position of the text after the window
  std::uint64_t stop_;
  std::size_t piece_;
  std::unique_ptr<char[]> buffer_;
  const char* at_;
  const char* end_;
  std::optional<Error> error_;
};

}  // namespace ballast::mlx_json
