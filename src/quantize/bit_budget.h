#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ballast {

// What a layer would be with so many bits.
struct BitChoice {
  unsigned bits;
  std::uint64_t bytes;
  double error;
};

// One choice for each layer, by its place, such that all bytes together are at most `budget` and all errors together are small.
// The choices of a layer go from few bytes to many. Empty if not even the first of each fit.
std::vector<std::size_t> allot_bits(std::span<const std::vector<BitChoice>> layers, std::uint64_t budget);

}  // namespace ballast
