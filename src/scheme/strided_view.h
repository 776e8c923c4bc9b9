#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ballast/tensor.h>

namespace ballast {

// Elements of a tensor in another order: element [i, j, …] of the view is element offset + i·strides[0] + j·strides[1] + … of the
// tensor.
struct StridedView {
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> strides;

  // The elements of the last axes that follow each other in the tensor as in the view.
  std::uint64_t run() const;
  // Where the element `index` of the view, counted in order, is in the tensor.
  std::uint64_t position(std::uint64_t index) const;

  // The tensor as it is.
  static StridedView whole(Shape shape);
  bool is_whole(Shape of) const;

  // With the last two axes exchanged; the view has at least two.
  StridedView transposed() const;
  // Every `step`-th index of an axis, from `first` on, `count` in all.
  StridedView every(std::size_t axis, std::uint64_t first, std::uint64_t step, std::uint64_t count) const;
};

}  // namespace ballast
