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

struct Allotment {
  std::vector<std::size_t> choices;  // for each layer, by its place
  std::uint64_t bytes = 0;
  double error = 0;
  bool is_uniform = false;  // the same bits for all, as far as layers have them
};

// One choice for each layer, such that all bytes together are at most `budget` and all errors together are small. The choices of
// a layer go from few bytes to many. What is uniform may have up to `uniform_budget`. Empty if nothing fits.
Allotment allot_bits(std::span<const std::vector<BitChoice>> layers, std::uint64_t budget, std::uint64_t uniform_budget);

}  // namespace ballast
