#include "source/remote/transfers.h"

#include <algorithm>

namespace ballast::remote {
namespace {

constexpr std::uint64_t kLargestGap = std::uint64_t{1} << 20;  // reading this much takes as long as another request
constexpr std::uint64_t kLargestRequest = std::uint64_t{8} << 20;

}  // namespace

std::vector<Transfer> plan_transfers(std::span<const Range> ranges) {
  std::vector<Transfer> merged;
  std::uint64_t needed = 0;  // bytes of the last transfer that are not discarded
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::uint64_t begin = ranges[i].offset;
    const std::uint64_t size = ranges[i].out.size();
    if (size == 0) continue;
    if (!merged.empty()) {
      Transfer& last = merged.back();
      const std::uint64_t end = std::max(last.end, begin + size);
      const bool is_near = begin <= last.end || begin - last.end <= kLargestGap;
      if (is_near && end - last.begin <= 2 * (needed + size)) {
        const auto first = static_cast<std::size_t>(last.parts.data() - ranges.data());
        last = {.begin = last.begin, .end = end, .parts = ranges.subspan(first, i + 1 - first)};
        needed += size;
        continue;
      }
    }
    merged.push_back({.begin = begin, .end = begin + size, .parts = ranges.subspan(i, 1)});
    needed = size;
  }
  std::vector<Transfer> transfers;
  for (const Transfer& all : merged) {
    for (std::uint64_t begin = all.begin; begin < all.end; begin += kLargestRequest) {
      transfers.push_back({.begin = begin, .end = std::min(all.end, begin + kLargestRequest), .parts = all.parts});
    }
  }
  return transfers;
}

}  // namespace ballast::remote
