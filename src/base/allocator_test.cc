#include <ballast/allocator.h>

#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(HostAllocator, SmallMemoryBeginsOnAPage) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{100'000}}) {
    std::byte* const bytes = host_allocator().allocate(size);
    ASSERT_NE(bytes, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 4096, 0);
    std::memset(bytes, 1, size);
    host_allocator().free(bytes, size);
  }
}

TEST(HostAllocator, LargeMemoryBeginsOnAHugePage) {
  constexpr std::size_t kSize = 5'000'000;
  std::byte* const bytes = host_allocator().allocate(kSize);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % (2 << 20), 0);
  std::memset(bytes, 1, kSize);
  host_allocator().free(bytes, kSize);
}

}  // namespace
}  // namespace ballast
