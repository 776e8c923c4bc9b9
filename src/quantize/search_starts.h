#pragma once

#include <array>
#include <cstddef>

namespace ballast {

// Where the sixteen candidates of `search` begin: eight widths for a range that keeps its lower end, seven for one that shrinks
// at both, and at last the plain parameters of round to nearest, which stay as they are.
struct SearchStarts {
  std::array<float, 16> width;   // of a step, as a share of the range
  std::array<float, 16> anchor;  // of the lowest value
  std::array<float, 16> plain;   // 1 for those that are not refined
};

inline constexpr std::size_t kPlainLane = 15;

inline SearchStarts search_starts(unsigned bits) {
  constexpr std::size_t kHalf = 8;
  const float steps = static_cast<float>((1U << bits) - 1U);
  // How many steps too many the narrowest range has: what few bits lose at the ends, they gain in between.
  const float most = bits == 2 ? 2.4F * 0.8F : bits <= 4 ? 3.0F * 0.8F : bits <= 6 ? 2.2F * 0.8F : 1.5F * 0.8F;
  SearchStarts starts{};
  for (std::size_t i = 0; i < 2 * kHalf; ++i) {
    const float excess = -0.3F + (most + 0.3F) * static_cast<float>(i % kHalf) / static_cast<float>(kHalf - 1);
    starts.width[i] = 1.0F / (steps + excess);
    starts.anchor[i] = i < kHalf ? 1.0F : steps / (steps + excess);
  }
  starts.plain[kPlainLane] = 1;
  return starts;
}

}  // namespace ballast
