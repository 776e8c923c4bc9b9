#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/sink.h>

#include "output/output.h"

namespace ballast {

// What the library's own writers ask of a sink besides.
class FileSink : public Sink {
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

  // Where a tensor's bytes lie; empty when they are not stored as they are.
  virtual std::optional<Place> place(std::size_t tensor) const = 0;

  // Moves bytes of `source` to a place, which may span tensors that lie side by side.
  virtual Result<void> copy(Place to, const Source& source, std::uint64_t from, std::uint64_t length) = 0;

  // Whether a run before this one has put these bytes in their place already.
  virtual bool has(Place to, std::uint64_t length) const = 0;
  // The same; if it has, they count as written.
  virtual bool skip(Place to, std::uint64_t length) = 0;

  // The files of weights, in order. Sizes are final after commit().
  virtual std::vector<File> files() const = 0;
};

// Refuses a piece that a tensor has no room for.
Result<void> check_piece(std::span<const std::uint64_t> sizes, std::size_t tensor, std::uint64_t offset, std::uint64_t bytes);

// A file of tensors that lies beside the weights, and is not one of them: no index lists it.
struct SideFile {
  std::string name;
  std::vector<TensorSpec> tensors;  // their numbers follow on those of the sink's own
  Metadata metadata;
};

// What else there is to a sink, besides what users may ask for.
struct SinkExtras {
  std::span<const Companion> companions;  // go into a directory; a single file has none
  std::string resume_key;  // with one, what was written when the work breaks off is kept, and a later sink with the same key
                           // goes on from there
  std::span<const SideFile> side_files;  // of SafeTensors, in a directory
  std::string index_metadata;            // members for the index beside total_size, as JSON; with some, there is always an index
};

Result<std::unique_ptr<FileSink>> create_file_sink(const std::string& path, std::vector<TensorSpec> tensors,
                                                   const SinkOptions& options, const SinkExtras& extras = {});

}  // namespace ballast
