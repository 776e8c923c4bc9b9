#include "errors.h"

#include <string>
#include <string_view>
#include <system_error>

#include <nanobind/stl/string.h>

namespace ballast::python {
namespace {

namespace nb = nanobind;

constexpr std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::kIo: return "ReadError";
    case Errc::kWrite: return "WriteError";
    case Errc::kCorrupt: return "CorruptError";
    case Errc::kUnsupported: return "UnsupportedError";
    case Errc::kNotFound: return "MissingError";
    case Errc::kInvalidArgument: return "ArgumentError";
    case Errc::kBelowMinimum: return "BelowMinimumError";
    case Errc::kCancelled: return "CancelledError";
  }
  return "BallastError";
}

}  // namespace

void raise(const Error& error) {
  if (error.code == Errc::kCancelled && PyErr_Occurred() != nullptr) throw nb::python_error();  // which is why
  const nb::object type = nb::module_::import_("ballast.errors").attr(name_of(error.code).data());
  const nb::object exception = type(nb::str(error.message.data(), error.message.size()));
  if (error.system_error != 0) {
    exception.attr("errno") = error.system_error;
    exception.attr("strerror") = std::generic_category().message(error.system_error);
  }
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw nb::python_error();
}

}  // namespace ballast::python
