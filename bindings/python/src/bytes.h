#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <nanobind/nanobind.h>

#include <ballast/tensor.h>

namespace ballast::python {

// Memory exported through the buffer protocol, and its owner.
struct Bytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  bool is_writable = false;

  static Bytes of(Tensor tensor);
};

// An object's buffer, held for reading.
class HeldBuffer {
 public:
  explicit HeldBuffer(const nanobind::handle& object);
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer();  // takes the GIL

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

void bind_bytes(nanobind::module_& module);

}  // namespace ballast::python
