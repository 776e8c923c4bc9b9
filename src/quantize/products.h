#pragma once

#include <cstddef>
#include <span>

namespace ballast {

// Matrices of floats whose product is added to another: sums[r][x] += left[r][i] * right[i][x] for every i below `terms`. The
// rows of `left` and `sums` may lie anywhere, as those of a packed triangle do. Nothing that is read is also written.
struct Products {
  std::span<const float* const> left;  // as many rows as `sums`, of `terms` values
  const float* right;
  std::size_t right_stride;  // from one row to the next
  std::size_t terms;
  std::span<float* const> sums;  // rows of `width` values
  std::size_t width;
};

// Every product is rounded, then added, the lowest i first: the result is that of the plain loop, whatever the processor.
void add_products(const Products& products);

}  // namespace ballast
