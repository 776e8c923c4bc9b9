#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <ballast/dtype.h>
#include <ballast/lora.h>
#include <ballast/pipeline.h>
#include <ballast/tensor.h>

#include "errors.h"

namespace ballast::python {

// A path as bytes, from bytes, an object with __fspath__, or a str whose surrogates stand for bytes that are not UTF-8.
class FsPath {
 public:
  FsPath() = default;
  explicit FsPath(std::string value) : value_(std::move(value)) {}

  const std::string& get() const {
    if (value_.contains('\0')) throw nanobind::value_error("embedded null byte");
    return value_;
  }

 private:
  std::string value_;
};

inline nanobind::object path_text(const std::string& path) {
  return nanobind::steal(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

inline nanobind::list path_texts(const std::vector<std::string>& paths) {
  nanobind::list made;
  for (const std::string& path : paths) made.append(path_text(path));
  return made;
}

inline nanobind::str text(std::string_view value) { return nanobind::str(value.data(), value.size()); }

inline nanobind::tuple tuple_of(Shape shape) {
  nanobind::list dims;
  for (const std::uint64_t dim : shape) dims.append(dim);
  return nanobind::tuple(dims);
}

// The components in a report.
inline nanobind::list components_of(std::span<const ComponentReport> components) {
  nanobind::list made;
  for (const ComponentReport& component : components) {
    nanobind::dict each;
    each["name"] = text(component.name);
    each["class_name"] = text(component.class_name);
    each["action"] = text(name(component.action));
    each["tensors"] = component.tensors;
    each["bytes"] = component.bytes;
    made.append(each);
  }
  return made;
}

inline DType dtype_of(std::string_view name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) raise({.code = Errc::kInvalidArgument, .message = "unknown dtype '" + std::string(name) + "'"});
  return *dtype;
}

// Adapters as paths and scales.
using Loras = std::vector<std::pair<FsPath, double>>;

inline std::vector<Lora> loras_of(const Loras& given) {
  std::vector<Lora> loras;
  for (const auto& [path, scale] : given) loras.push_back({.path = path.get(), .scale = scale});
  return loras;
}

}  // namespace ballast::python

template <>
struct nanobind::detail::type_caster<ballast::python::FsPath> {
  NB_TYPE_CASTER(ballast::python::FsPath, const_name("str | bytes | os.PathLike"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    const object path = steal(PyOS_FSPath(source.ptr()));
    const object encoded = path.is_valid() && PyUnicode_Check(path.ptr()) ? steal(PyUnicode_EncodeFSDefault(path.ptr())) : path;
    if (!encoded.is_valid()) {
      PyErr_Clear();
      return false;
    }
    value =
        ballast::python::FsPath({PyBytes_AS_STRING(encoded.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr()))});
    return true;
  }
};
