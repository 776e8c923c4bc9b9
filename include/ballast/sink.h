#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/model.h>
#include <ballast/safetensors_layout.h>
#include <ballast/tensor.h>
#include <ballast/tensor_spec.h>
#include <ballast/work.h>

namespace ballast {

struct SinkOptions {
  std::optional<Format> format;  // empty: by the suffix of the path; SafeTensors in a directory
  // Largest size of a file in a directory, with its header. A larger tensor gets a file of its own. 0: no limit.
  std::uint64_t max_shard_bytes = 0;
  Metadata metadata;
  bool keep_empty_metadata = false;  // write `"__metadata__":{}` if `metadata` is empty
  bool sync = true;                  // commit() waits until the data is on disk
};

// Writes a model in pieces, without buffering whole tensors. Nothing appears under the final name before commit(). A sink that is
// destroyed without commit() removes what it has written. Problems with the output have the code Errc::kWrite.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // Writes a piece of the tensor with index `tensor`, starting at its byte `offset`. Every byte must be written exactly once.
  // SafeTensors accepts pieces in any order and from many threads at once; MLX JSON only in order, one at a time.
  virtual Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

  // Moves the output to its final name. Fails if a tensor is incomplete.
  virtual Result<void> commit() = 0;
};

// Opens an output for these tensors: one file if `path` ends in .safetensors or .mlx, else a model directory, where an existing
// model is replaced. `work.threads` is used to format numbers as text for MLX JSON.
Result<std::unique_ptr<Sink>> create_sink(const std::string& path, std::vector<TensorSpec> tensors,
                                          const SinkOptions& options = {}, const WorkOptions& work = {});

// Writes tensors from memory.
Result<void> save_tensors(const std::string& path, std::span<const TensorView> tensors, const SinkOptions& options = {},
                          const WorkOptions& work = {});

}  // namespace ballast
