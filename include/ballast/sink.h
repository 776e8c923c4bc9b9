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
  std::optional<Format> format;  // by default what the path's ending says; SafeTensors in a directory
  std::uint64_t max_shard_bytes =
      0;  // of a file in a directory, header included; only a tensor larger than that exceeds it; 0: any
  Metadata metadata;
  bool keep_empty_metadata = false;  // SafeTensors says `"__metadata__":{}` where there are none
  bool sync = true;                  // wait at commit() until the disk has it all
};

// Takes a model tensor by tensor, in pieces, and never holds more than a piece. Nothing is to be seen under the final name before
// commit(), and without it nothing remains. What goes wrong with the output is Errc::kWrite.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // Writes a piece of tensor number `tensor`, from its byte `offset` on; every byte once. SafeTensors takes pieces in any order,
  // from many threads at once; MLX JSON takes them one after the other, as the tensors were declared.
  virtual Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

  // Puts the whole output in place. Fails when a tensor is not whole.
  virtual Result<void> commit() = 0;
};

// Opens an output for these tensors: one file when `path` ends in .safetensors or .mlx, else a model directory, which may hold a
// model that is to be replaced. Of `work` a sink uses the threads, where it has work of its own, such as writing numbers as text.
Result<std::unique_ptr<Sink>> create_sink(const std::string& path, std::vector<TensorSpec> tensors,
                                          const SinkOptions& options = {}, const WorkOptions& work = {});

// Writes tensors that are in memory.
Result<void> save_tensors(const std::string& path, std::span<const TensorView> tensors, const SinkOptions& options = {},
                          const WorkOptions& work = {});

}  // namespace ballast
