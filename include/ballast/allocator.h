#pragma once

#include <cstddef>

namespace ballast {

// Where owned bytes go. A runtime can hand in shared or pinned memory of its own. Called from one thread at a time.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  // Memory that begins on a 4096-byte boundary and lives until it is freed; null when there is not enough. `size` is above 0.
  virtual std::byte* allocate(std::size_t size) = 0;
  virtual void free(std::byte* bytes, std::size_t size) = 0;
};

// Host memory, in huge pages where the system has them.
Allocator& host_allocator();

}  // namespace ballast
