#include <ballast/allocator.h>

#include <new>

#include "base/bytes.h"

namespace ballast {
namespace {

class HostAllocator final : public Allocator {
 public:
  std::byte* allocate(std::size_t size) override {
    constexpr std::size_t kPage = 4096;
    try {
      return allocate_bytes(size, kPage);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void free(std::byte* bytes, std::size_t) override { free_bytes(bytes); }
};

}  // namespace

Allocator& host_allocator() {
  static HostAllocator allocator;
  return allocator;
}

}  // namespace ballast
