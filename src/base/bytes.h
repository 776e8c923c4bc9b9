#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ballast {

// Uninitialized memory. Large blocks request huge pages, because most of the cost of filling new memory is page faults.
std::byte* allocate_bytes(std::size_t size, std::size_t alignment = 64);
void free_bytes(std::byte* bytes);

struct FreeBytes {
  void operator()(std::byte* bytes) const { free_bytes(bytes); }
};
using Bytes = std::unique_ptr<std::byte[], FreeBytes>;

template <class T>
struct BytesAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): required by the standard

  BytesAllocator() = default;
  template <class U>
  BytesAllocator(const BytesAllocator<U>&) {}

  T* allocate(std::size_t count) { return reinterpret_cast<T*>(allocate_bytes(count * sizeof(T))); }
  void deallocate(T* values, std::size_t) { free_bytes(reinterpret_cast<std::byte*>(values)); }
  bool operator==(const BytesAllocator&) const = default;
};

// For tables with an entry per tensor.
template <class T>
using LargeVector = std::vector<T, BytesAllocator<T>>;

}  // namespace ballast
