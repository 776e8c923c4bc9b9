#include "bytes.h"

#include <array>
#include <utility>

namespace ballast::python {
namespace {

namespace nb = nanobind;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const held = nb::inst_ptr<Bytes>(self);
  // A read-only buffer is not written to.
  auto* const data = const_cast<std::byte*>(held->bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(held->bytes.size()), held->is_writable ? 0 : 1, flags);
}

}  // namespace

Bytes Bytes::of(Tensor tensor) {
  auto owner = std::make_shared<Tensor>(std::move(tensor));
  const std::span<const std::byte> bytes = std::as_const(*owner).bytes();
  return {.owner = std::move(owner), .bytes = bytes, .is_writable = true};
}

HeldBuffer::HeldBuffer(const nb::handle& object) {
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
}

HeldBuffer::~HeldBuffer() {
  const nb::gil_scoped_acquire acquire;
  PyBuffer_Release(&view_);
}

void bind_bytes(nb::module_& module) {
  static std::array slots{PyType_Slot{.slot = Py_bf_getbuffer, .pfunc = reinterpret_cast<void*>(get_buffer)},
                          PyType_Slot{.slot = 0, .pfunc = nullptr}};
  nb::class_<Bytes>(module, "Bytes", nb::type_slots(slots.data())).def("__len__", [](const Bytes& self) {
    return self.bytes.size();
  });
}

}  // namespace ballast::python
