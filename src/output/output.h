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

// A file that lies beside the weights in a model directory.
struct Companion {
  std::string name;
  std::string path;  // where to copy it from; else it is
  std::string text;
};

// One file, or the files of a model directory, that appear together. Files added first appear first.
class Output {
 public:
  static Output file(std::string path) { return {std::move(path), std::nullopt}; }
  static Result<Output> directory(const std::string& path);

  bool is_directory() const { return directory_.has_value(); }

  // Keeps, from here on, the files added with add_kept() in what is called `incomplete` if they are not committed.
  Result<void> keep_incomplete();

  // The number of a new file; `name` is its name in a directory. A single file is added once.
  Result<std::size_t> add(std::string_view name);
  Result<std::size_t> add_kept(std::string_view name);
  Result<void> add(const Companion& companion);

  OutputFile& operator[](std::size_t file) { return files_[file]; }
  const OutputFile& operator[](std::size_t file) const { return files_[file]; }

  // Where to note what is done of the files kept.
  std::string journal_path() const;

  Result<void> commit(bool sync);

 private:
  Output(std::string path, std::optional<OutputDirectory> directory) : path_(std::move(path)), directory_(std::move(directory)) {}

  std::string path_;
  std::optional<OutputDirectory> directory_;
  std::string incomplete_;  // a folder for a directory, a file for a file; empty when nothing is kept
  FileDescriptor lock_;     // of that folder: two runs must not keep their files there at once
  std::vector<OutputFile> files_;
};

// Removes what a run that died just after its directory was in place may have left.
void remove_leftovers(const std::string& directory);

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace ballast
