#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <ballast/allocator.h>
#include <ballast/error.h>
#include <ballast/tensor.h>
#include <ballast/work.h>

namespace ballast {

enum class LoadPath {
  kAuto,      // kDirect for files of which less than half is in the page cache
  kBuffered,  // through the page cache
  kDirect,    // past the page cache, where filesystem and layout allow it; else through it
};

struct LoadOptions {
  Allocator* allocator = nullptr;   // borrowed until the loaded model is gone; null: host_allocator()
  LoadPath path = LoadPath::kAuto;  // Parquet is always kBuffered
  WorkOptions work;  // threads 0: one per core, more where the disk is slow; memory_limit: refuse to allocate more, 0: no limit
};

// All tensors of a model, in one piece of memory that it owns. Depends on neither the files nor the Model it came from. All const
// members may be called from many threads at once.
class LoadedModel {
 public:
  LoadedModel(LoadedModel&&) noexcept;
  LoadedModel& operator=(LoadedModel&&) noexcept;
  ~LoadedModel();

  std::span<const TensorView> tensors() const;  // in the order of Model::tensors(), valid while this lives
  const TensorView* find(std::string_view name) const;
  Result<TensorView> view(std::string_view name) const&;
  Result<TensorView> view(std::string_view name) && = delete;

  std::uint64_t bytes() const;  // of memory held: the tensors', and up to 4 KiB per file or 64 bytes per tensor

 private:
  friend struct LoadedModelAccess;
  struct State;
  explicit LoadedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ballast
