#include "format/mlx_json/text_window.h"

#include <algorithm>
#include <cstring>

namespace ballast::mlx_json {

TextWindow::TextWindow(const Source& text, std::uint64_t begin, std::uint64_t end, std::size_t piece)
    : text_(text),
      next_(begin),
      stop_(end),
      piece_(static_cast<std::size_t>(std::min<std::uint64_t>(piece, end - begin))),
      buffer_(std::make_unique_for_overwrite<char[]>(kMostKept + piece_ + kPadding)),
      at_(buffer_.get()),
      end_(buffer_.get()) {
  std::memset(buffer_.get(), 0, kPadding);
}

bool TextWindow::slide() {
  const auto kept = static_cast<std::size_t>(end_ - at_);
  if (error_ || next_ == stop_ || kept > kMostKept) return false;
  char* const fresh = buffer_.get() + kept;
  std::memmove(buffer_.get(), at_, kept);
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece_, stop_ - next_));
  at_ = buffer_.get();
  end_ = fresh;
  if (auto read = text_.read_at(next_, std::as_writable_bytes(std::span(fresh, count))); !read) {
    error_ = std::move(read.error());
    std::memset(fresh, 0, kPadding);
    return false;
  }
  next_ += count;
  end_ = fresh + count;
  std::memset(fresh + count, 0, kPadding);
  return true;
}

}  // namespace ballast::mlx_json
