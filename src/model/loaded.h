#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <ballast/error.h>
#include <ballast/load.h>

#include "base/bytes.h"
#include "base/name_index.h"

namespace ballast {

// One block of memory from an allocator, aligned to Source::kDirectAlignment; null if empty.
class Arena {
 public:
  // Uses the allocator and the memory limit of `options`. Error messages start with `path`.
  static Result<Arena> allocate(const std::string& path, std::uint64_t bytes, const LoadOptions& options);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  Arena() = default;

  Allocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Lets other parts of the library create loaded models.
struct LoadedModelAccess {
  // `begin` and `end` of the tensors are offsets in `memory`; their names and shapes are copied. `index` belongs to `tensors`.
  // `path` is used in messages.
  static LoadedModel make(std::string path, Arena memory, LargeVector<TensorInfo> tensors, NameIndex index);
};

}  // namespace ballast
