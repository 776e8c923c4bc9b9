#pragma once

#include <array>
#include <cstddef>

namespace ballast {

// The starting points of the sixteen candidates of `search`: eight widths for a range with a fixed lower end, seven for one that
// shrinks at both ends, and last the parameters of round to nearest, which are not refined.
struct SearchStarts {
  std::array<float, 16> width;   // of a step, as a share of the range
  std::array<float, 16> anchor;  // of the lowest value
  std::array<float, 16> middle;  // as `width`, if the lowest value is fixed by the zero point
  std::array<float, 16> plain;   // 1 for those that are not refined
};

inline constexpr std::size_t kPlainLane = 15;

inline SearchStarts search_starts(unsigned bits) {
  constexpr std::size_t kHalf = 8;
  const float steps = static_cast<float>((1U << bits) - 1U);
  // How many steps the narrowest range has too many: few bits gain more inside the range than they lose at its ends.
  const float most = bits == 2 ? 2.4F * 0.8F : bits <= 4 ? 3.0F * 0.8F : bits <= 6 ? 2.2F * 0.8F : 1.5F * 0.8F;
  SearchStarts starts{};
  for (std::size_t i = 0; i < 2 * kHalf; ++i) {
    const float excess = -0.3F + (most + 0.3F) * static_cast<float>(i % kHalf) / static_cast<float>(kHalf - 1);
    starts.width[i] = 1.0F / (steps + excess);
    starts.anchor[i] = i < kHalf ? 1.0F : steps / (steps + excess);
    starts.middle[i] = 1.0F / (steps - 1.0F + (most + 1.0F) * static_cast<float>(i) / static_cast<float>(kPlainLane));
  }
  starts.plain[kPlainLane] = 1;
  return starts;
}

}  // namespace ballast
