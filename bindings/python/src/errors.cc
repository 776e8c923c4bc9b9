#include "errors.h"

#include <string>
#include <system_error>

#include <nanobind/stl/string.h>

namespace ballast::python {

namespace nb = nanobind;

void raise(const Error& error) {
  if (error.code == Errc::kCancelled && PyErr_Occurred() != nullptr)
    throw nb::python_error();  // the exception that cancelled the work
  const nb::object type = nb::module_::import_("ballast._errors").attr(std::string(name(error.code)).c_str());
  const nb::object exception = type(nb::str(error.message.data(), error.message.size()));
  if (error.system_error != 0) {
    exception.attr("errno") = error.system_error;
    exception.attr("strerror") = std::generic_category().message(error.system_error);
  }
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw nb::python_error();
}

}  // namespace ballast::python
