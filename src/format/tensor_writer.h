#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

#include "output/output.h"

namespace ballast {

// A file of tensors that lies beside the weights and is not listed in the index.
struct SideFile {
  std::string name;
  std::vector<TensorSpec> tensors;  // numbered after those of the weights
  Metadata metadata;
};

struct TensorWriterOptions {
  Metadata metadata;
  bool keep_empty_metadata = false;
  std::uint64_t max_shard_bytes = 0;      // 0: one file
  bool sync = true;                       // wait at commit() until the disk has it all
  unsigned threads = 0;                   // for formatting numbers as text; 0: one per core
  std::span<const Companion> companions;  // copied into a directory; a single file has none
  std::string resume_key;                 // not empty: keep what was written if the work stops, and resume from it
  std::span<const SideFile> side_files;   // SafeTensors, in a directory
  std::string index_metadata;             // members of the index beside total_size, as JSON; if any, there is always an index
};

// Writes declared tensors, in pieces, to an Output: one implementation for each container. Nothing is visible under the final
// name before commit().
class TensorWriter {
 public:
  struct Place {
    std::size_t file;
    std::uint64_t offset;
    bool operator==(const Place&) const = default;
  };
  struct File {
    std::string path;
    std::uint64_t bytes;
  };

  TensorWriter() = default;
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;
  virtual ~TensorWriter() = default;

  // Writes a piece of tensor number `tensor` from its byte `offset` on; every byte once. See Sink::write().
  virtual Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

  // Where a tensor's bytes lie; empty when they are not stored as they are.
  virtual std::optional<Place> place(std::size_t tensor) const = 0;

  // Moves bytes of `source` to a place, which may span tensors that lie side by side.
  virtual Result<void> copy(Place to, const Source& source, std::uint64_t from, std::uint64_t length) = 0;

  // Whether an earlier run has put these bytes in their place.
  virtual bool has(Place to, std::uint64_t length) const = 0;
  // The same; if it has, they count as written.
  virtual bool skip(Place to, std::uint64_t length) = 0;

  // The files of weights, in order. Sizes are final after commit().
  virtual std::vector<File> files() const = 0;

  // Puts the output in place. Fails when a tensor is not whole.
  virtual Result<void> commit() = 0;
};

// Refuses a piece that a tensor has no room for.
Result<void> check_piece(std::span<const std::uint64_t> sizes, std::size_t tensor, std::uint64_t offset, std::uint64_t bytes);

}  // namespace ballast
