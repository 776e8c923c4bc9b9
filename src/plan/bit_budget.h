#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ballast {

// A layer with a number of bits.
struct BitChoice {
  unsigned bits;
  std::uint64_t bytes;
  double error;
};

struct Allotment {
  std::vector<std::size_t> choices;  // the index of each layer's choice
  std::uint64_t bytes = 0;
  double error = 0;
  bool is_uniform = false;  // the same bits for all layers that offer them
};

// The same bits for all layers: the largest choice of at most `bits`, else the first.
Allotment same_bits(std::span<const std::vector<BitChoice>> layers, unsigned bits);

// Picks one choice for each layer, with a total of at most `budget` bytes and a small total error. The choices of a layer are in
// ascending order of bytes. A uniform pick may have up to `uniform_budget` bytes. Empty if nothing fits.
Allotment allot_bits(std::span<const std::vector<BitChoice>> layers, std::uint64_t budget, std::uint64_t uniform_budget);

}  // namespace ballast
