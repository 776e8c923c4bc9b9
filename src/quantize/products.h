#pragma once

#include <cstddef>
#include <span>

namespace ballast {

// A matrix product that is added to another matrix: sums[r][x] += left[r][i] * right[i][x] for every i below `terms`. The rows of
// `left` and `sums` may be anywhere, as in a packed triangle. Inputs and outputs do not overlap.
struct Products {
  std::span<const float* const> left;  // as many rows as `sums`, of `terms` values
  const float* right;
  std::size_t right_stride;  // from one row to the next
  std::size_t terms;
  std::span<float* const> sums;  // rows of `width` values
  std::size_t width;
};

// Every product is rounded, then added, lowest i first: the result is that of the plain loop on every processor.
void add_products(const Products& products);

}  // namespace ballast
