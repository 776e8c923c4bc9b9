#include "tensors.h"

#include "values.h"

namespace ballast::python {

Tensors::Tensors(const std::vector<Item>& items) {
  for (const auto& [name, dtype, shape, buffer] : items) {
    specs_.push_back({.name = name, .dtype = dtype_of(dtype), .shape = shape});
    buffers_.emplace_back(buffer);
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    views_.push_back({.name = specs_[i].name, .dtype = specs_[i].dtype, .shape = specs_[i].shape, .bytes = buffers_[i].bytes()});
  }
}

}  // namespace ballast::python
