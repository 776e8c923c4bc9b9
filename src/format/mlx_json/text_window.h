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

// Slides over a part of a text from front to back, so that a text of any size is read in the same little memory. [at(), end()) is
// what is in memory. NUL bytes follow it, kPadding of them, so that loops over the text need not look for its end.
class TextWindow {
 public:
  static constexpr std::size_t kPadding = 8;
  static constexpr std::size_t kPiece = std::size_t{256} << 10;  // what one read asks for
  static constexpr std::size_t kMostKept = 4096;                 // the longest token that can be seen whole, whatever the piece

  // Begins empty, at byte `begin` of the text.
  TextWindow(const Source& text, std::uint64_t begin, std::uint64_t end, std::size_t piece = kPiece);

  const char* at() const { return at_; }
  const char* end() const { return end_; }
  void move_to(const char* place) { at_ = place; }
  std::uint64_t position(const char* place) const { return next_ - static_cast<std::uint64_t>(end_ - place); }

  // Drops what lies before at() and adds a piece behind it; pointers into the window become invalid. False at the end of the
  // text, when more than kMostKept bytes would have to be kept, and when reading fails.
  bool slide();

  // Slides until `bytes` lie before end(), or there is no more text.
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
  std::uint64_t next_;  // where the text behind the window begins
  std::uint64_t stop_;
  std::size_t piece_;
  std::unique_ptr<char[]> buffer_;
  const char* at_;
  const char* end_;
  std::optional<Error> error_;
};

}  // namespace ballast::mlx_json
