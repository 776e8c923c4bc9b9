#include "base/bytes.h"

#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace ballast {

std::byte* allocate_bytes(std::size_t size, std::size_t alignment) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool huge = size >= kHugePage;
  void* bytes = nullptr;
  if (::posix_memalign(&bytes, huge ? kHugePage : alignment, size) != 0) throw std::bad_alloc();
  if (huge) ::madvise(bytes, size, MADV_HUGEPAGE);  // only a hint; failure is harmless
  return static_cast<std::byte*>(bytes);
}

void free_bytes(std::byte* bytes) {
  std::free(bytes);  // NOLINT(cppcoreguidelines-no-malloc): delete would need the alignment
}

}  // namespace ballast
