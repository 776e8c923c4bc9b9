#include "scheme/strided_view.h"

#include <utility>

#include "scheme/matrix.h"

namespace ballast {

std::uint64_t StridedView::run() const {
  std::uint64_t length = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (strides[axis] != length && shape[axis] != 1) break;
    length *= shape[axis];
  }
  return length;
}

std::uint64_t StridedView::position(std::uint64_t index) const {
  std::uint64_t at = offset;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    at += index % shape[axis] * strides[axis];
    index /= shape[axis];
  }
  return at;
}

StridedView StridedView::whole(Shape shape) {
  StridedView view{.shape = {shape.begin(), shape.end()}, .offset = 0, .strides = std::vector<std::uint64_t>(shape.size())};
  std::uint64_t step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    view.strides[axis] = step;
    step *= shape[axis];
  }
  return view;
}

bool StridedView::is_whole(Shape of) const {
  const std::uint64_t elements = product(shape);
  return offset == 0 && elements == product(of) && (elements == 0 || run() == elements);
}

StridedView StridedView::transposed() const {
  StridedView view = *this;
  std::swap(view.shape.back(), view.shape[shape.size() - 2]);
  std::swap(view.strides.back(), view.strides[shape.size() - 2]);
  return view;
}

StridedView StridedView::every(std::size_t axis, std::uint64_t first, std::uint64_t step, std::uint64_t count) const {
  StridedView view = *this;
  view.offset += first * view.strides[axis];
  view.shape[axis] = count;
  view.strides[axis] *= step;
  return view;
}

}  // namespace ballast
