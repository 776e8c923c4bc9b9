#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include <ballast/dtype.h>
#include <ballast/tensor.h>

#include "errors.h"

namespace ballast::python {

inline nanobind::str text(std::string_view value) { return nanobind::str(value.data(), value.size()); }

inline nanobind::tuple tuple_of(Shape shape) {
  nanobind::list dims;
  for (const std::uint64_t dim : shape) dims.append(dim);
  return nanobind::tuple(dims);
}

inline DType dtype_of(std::string_view name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) raise({.code = Errc::kInvalidArgument, .message = "no dtype is called " + std::string(name)});
  return *dtype;
}

}  // namespace ballast::python
