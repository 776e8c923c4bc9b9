#pragma once

#include <nanobind/nanobind.h>

namespace ballast::python {

void bind_evaluate(nanobind::module_& module);

}  // namespace ballast::python
