#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/tensor.h>

#include "scheme/strided_view.h"
#include "source/source.h"

namespace ballast {

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
