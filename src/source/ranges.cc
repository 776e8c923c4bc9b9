#include <algorithm>
#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "base/try.h"
#include "source/source.h"

namespace ballast {
namespace {

// Consecutive ranges to read at once, and the bytes that they span.
struct Window {
  std::span<const Range> ranges;
  std::uint64_t low;
  std::uint64_t high;
};

std::vector<Window> windows_of(std::span<const Range> ranges) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 20;
  constexpr std::uint64_t kLargestGap = 4096;  // reading a gap of this size costs no more than skipping it
  std::vector<Window> windows;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::uint64_t begin = ranges[i].offset;
    const std::uint64_t end = begin + ranges[i].out.size();
    if (!windows.empty()) {
      Window& last = windows.back();
      const std::uint64_t low = std::min(last.low, begin);
      const std::uint64_t high = std::max(last.high, end);
      const std::uint64_t gap = begin >= last.high ? begin - last.high : end <= last.low ? last.low - end : 0;
      if (high - low <= kLargest && gap <= kLargestGap) {
        last = {.ranges = {last.ranges.data(), last.ranges.size() + 1}, .low = low, .high = high};
        continue;
      }
    }
    windows.push_back({.ranges = ranges.subspan(i, 1), .low = begin, .high = end});
  }
  return windows;
}

Result<void> read_window(const Source& source, const Window& window, std::vector<std::byte>& scratch) {
  if (window.ranges.size() == 1) return source.read_at(window.low, window.ranges.front().out);
  scratch.resize(window.high - window.low);
  TRY(source.read_at(window.low, scratch));
  for (const Range& range : window.ranges) {
    std::memcpy(range.out.data(), scratch.data() + (range.offset - window.low), range.out.size());
  }
  return {};
}

}  // namespace

Result<void> Source::read_ranges(std::span<const Range> ranges) const {
  const auto windows = windows_of(ranges);
  constexpr std::size_t kWorthThreads = 32;
  const unsigned threads = windows.size() < kWorthThreads ? 1 : thread_count(0);
  std::vector<std::vector<std::byte>> scratch(threads);
  return try_parallel(windows.size(), threads,
                      [&](unsigned worker, std::size_t i) { return read_window(*this, windows[i], scratch[worker]); });
}

}  // namespace ballast
