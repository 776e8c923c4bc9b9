#pragma once

#include <memory>

#include <nanobind/nanobind.h>

#include <ballast/model.h>

namespace ballast::python {

// A model that may be closed while arrays still use its bytes.
class OpenModel {
 public:
  explicit OpenModel(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  const Model& get() const { return *held(); }                    // raises ValueError if closed
  std::shared_ptr<const Model> shared() const { return held(); }  // for work during which it might be closed
  void close() { model_.reset(); }
  bool is_closed() const { return model_ == nullptr; }

 private:
  const std::shared_ptr<const Model>& held() const;

  std::shared_ptr<const Model> model_;
};

void bind_model(nanobind::module_& module);

}  // namespace ballast::python
