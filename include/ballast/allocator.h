#pragma once

#include <cstddef>

namespace ballast {

// Provides memory for loaded tensors, so that a runtime can use its own shared or pinned memory. Called from one thread at a
// time.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  // Returns memory aligned to 4096 bytes, valid until free(), or null if there is not enough. `size` is greater than 0.
  virtual std::byte* allocate(std::size_t size) = 0;
  virtual void free(std::byte* bytes, std::size_t size) = 0;
};

// Allocates host memory, in huge pages if the system supports them.
Allocator& host_allocator();

}  // namespace ballast
