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
  kAuto,      // kDirect for files that are less than half in the page cache, else kBuffered
  kBuffered,  // read through the page cache
  kDirect,    // bypass the page cache where the filesystem and the file's layout allow it
};

struct LoadOptions {
  Allocator* allocator = nullptr;   // must outlive the loaded model; null: host_allocator()
  LoadPath path = LoadPath::kAuto;  // Parquet is always kBuffered
  // threads 0: one per core, more if the disk is slow. memory_limit: fail instead of allocating more; 0: no limit.
  WorkOptions work;
};

// All tensors of a model in one block of memory. Does not need the files or the Model it was loaded from. Const members are
// thread-safe.
class LoadedModel {
 public:
  LoadedModel(LoadedModel&&) noexcept;
  LoadedModel& operator=(LoadedModel&&) noexcept;
  ~LoadedModel();

  std::span<const TensorView> tensors() const;  // in the order of Model::tensors(); valid for the lifetime of this object
  const TensorView* find(std::string_view name) const;
  Result<TensorView> view(std::string_view name) const&;
  Result<TensorView> view(std::string_view name) && = delete;

  std::uint64_t bytes() const;  // allocated: the tensors plus padding of up to 4 KiB per file or 64 bytes per tensor

 private:
  friend struct LoadedModelAccess;
  struct State;
  explicit LoadedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ballast
