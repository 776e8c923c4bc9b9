#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

#include "base/file_names.h"
#include "output/output.h"

namespace ballast {

// A file of tensors beside the weights that is not listed in the index.
struct SideFile {
  std::string name;
  std::vector<TensorSpec> tensors;  // their indices follow those of the weights
  Metadata metadata;
};

struct TensorWriterOptions {
  Metadata metadata;
  bool keep_empty_metadata = false;
  std::uint64_t max_shard_bytes = 0;      // 0: one file
  bool sync = true;                       // commit() waits until the data is on disk
  unsigned threads = 0;                   // for formatting numbers as text; 0: one per core
  std::string stem{kModelStem};           // of the files in a directory of SafeTensors
  std::span<const Companion> companions;  // copied into a directory; a single file has none
  std::string resume_key;                 // if not empty: keep partial output, and resume from one with the same key
  std::span<const SideFile> side_files;   // only for SafeTensors in a directory
  std::string index_metadata;             // extra JSON members for the index's metadata; if set, an index is always written
};

// Writes declared tensors, in pieces, to an Output. Each container format has an implementation. Nothing is visible under the
// final name before commit().
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

  // Writes a piece of a tensor. See Sink::write().
  virtual Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

  // Where the tensor's bytes are stored; empty if they are stored in another form, such as text.
  virtual std::optional<Place> place(std::size_t tensor) const = 0;

  // Copies bytes of `source` to a place. They may span several adjacent tensors.
  virtual Result<void> copy(Place to, const Source& source, std::uint64_t from, std::uint64_t length) = 0;

  // Whether an earlier run has written these bytes.
  virtual bool has(Place to, std::uint64_t length) const = 0;
  // Like has(), and counts the bytes as written if it returns true.
  virtual bool skip(Place to, std::uint64_t length) = 0;

  // The weight files, in order. Sizes are final after commit().
  virtual std::vector<File> files() const = 0;

  // Moves the output to its final name. Fails if a tensor is incomplete.
  virtual Result<void> commit() = 0;
};

// Fails if a piece does not fit into its tensor.
Result<void> check_piece(std::span<const std::uint64_t> sizes, std::size_t tensor, std::uint64_t offset, std::uint64_t bytes);

}  // namespace ballast
