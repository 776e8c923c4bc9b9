#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/tensor.h>

#include "source/source.h"

namespace ballast {

// Elements of a tensor in another order: element [i, j, …] of the view is element offset + i·strides[0] + j·strides[1] + … of the
// tensor.
struct StridedView {
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> strides;

  // The tensor as it is.
  static StridedView whole(Shape shape);
  bool is_whole(Shape shape) const;

  // With the last two axes exchanged; the view has at least two.
  StridedView transposed() const;
  // Every `step`-th index of an axis, from `first` on, `count` in all.
  StridedView every(std::size_t axis, std::uint64_t first, std::uint64_t step, std::uint64_t count) const;
};

// A tensor that is made of others: the view of one, or a stack of the same view of several, along a new first axis.
struct ArrangedTensor {
  std::string name;
  std::vector<const TensorInfo*> parts;  // of one dtype and shape; not empty
  StridedView view;
  bool stacked = false;

  std::vector<std::uint64_t> shape() const;
};

// A virtual SafeTensors file of such tensors, with the metadata of the model, which must outlive it. Values are read when they
// are needed; strided ones by way of a few MiB of memory. Views must stay inside their tensors. Elements of less than a byte can
// only be taken whole.
Result<std::unique_ptr<Source>> open_arranged(const Model& model, std::vector<ArrangedTensor> tensors);

// A model of such tensors, in the folder of `model` and with its config.
Result<Model> arrange(const Model& model, std::vector<ArrangedTensor> tensors);

}  // namespace ballast
