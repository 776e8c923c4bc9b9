#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"
#include "output/directory.h"
#include "output/file.h"

namespace ballast {

// A file beside the weights in a model directory.
struct Companion {
  std::string name;
  std::string path;  // the file to copy; if empty, `text` is written
  std::string text;
};

// One file, or the files of a model directory, which appear together on commit(), in the order in which they were added.
class Output {
 public:
  static Output file(std::string path) { return {std::move(path), std::nullopt}; }
  static Result<Output> directory(const std::string& path);

  bool is_directory() const { return directory_.has_value(); }

  // Makes files of add_partial() survive under an `.incomplete` path if they are not committed. Call it before add_partial().
  Result<void> keep_incomplete();

  // Adds a file and returns its index. `name` is its name in a directory. A single-file output accepts one file.
  Result<std::size_t> add(std::string_view name);
  Result<std::size_t> add_partial(std::string_view name);
  Result<void> add(const Companion& companion);

  OutputFile& operator[](std::size_t file) { return files_[file]; }
  const OutputFile& operator[](std::size_t file) const { return files_[file]; }

  // The path of the journal of partial files.
  std::string journal_path() const;

  Result<void> commit(bool sync);

 private:
  Output(std::string path, std::optional<OutputDirectory> directory) : path_(std::move(path)), directory_(std::move(directory)) {}

  std::string path_;
  std::optional<OutputDirectory> directory_;
  std::string incomplete_;  // a folder for a directory, a file for a file; empty without keep_incomplete()
  FileDescriptor lock_;     // of that folder: two processes must not use it at the same time
  std::vector<OutputFile> files_;
};

// Removes the partial files of a process that died just after its directory was moved into place.
void remove_leftovers(const std::string& directory);

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace ballast
