#include "buffers.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "errors.h"

namespace ballast::node {

bool is_aligned(const std::byte* bytes, DType dtype) {
  const std::size_t element = dtype == DType::kC64 ? sizeof(float) : std::max<std::size_t>(bits(dtype) / 8, 1);
  return reinterpret_cast<std::uintptr_t>(bytes) % element == 0;
}

Napi::Value external_buffer(Napi::Env env, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  auto* const data = const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  using Owner = std::shared_ptr<const void>;
  auto held = std::make_unique<Owner>(std::move(owner));
  const auto release = [](napi_env, void*, void* hint) { const std::unique_ptr<Owner> gone(static_cast<Owner*>(hint)); };
  napi_value buffer = nullptr;
  if (napi_create_external_arraybuffer(env, data, bytes.size(), release, held.get(), &buffer) == napi_ok) {
    held.release();  // NOLINT(bugprone-unused-return-value): `release` has it now
    return {env, buffer};
  }
  if (env.IsExceptionPending()) env.GetAndClearPendingException();
  return throw_error(env, {.code = Errc::kUnsupported,
                           .message = "this JavaScript engine refuses an ArrayBuffer of " + std::to_string(bytes.size()) +
                                      " bytes over memory that it did not allocate; read() makes a copy instead"});
}

void advise_huge_pages(std::span<std::byte> memory) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory.data()) % kHugePage;
  if (memory.size() < before + kHugePage) return;
  const std::span inside = memory.subspan(before);
  ::madvise(inside.data(), inside.size() / kHugePage * kHugePage, MADV_HUGEPAGE);
}

}  // namespace ballast::node
