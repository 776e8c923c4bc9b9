#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/path/path.h"

namespace ballast {

// A folder and what it holds. Errors name the folder or the file.
class Folder {
 public:
  // Lists the folder now, and never again.
  static Result<Folder> list(std::string path, const ReadOptions& options = {});
  // Asks for files when they are wanted: a server may let files be read, but not listed.
  explicit Folder(std::string path, ReadOptions options = {}) : path_(std::move(path)), options_(std::move(options)) {}

  const std::string& path() const { return path_; }
  Result<std::vector<ListedFile>> files() const;  // in the order of their names
  Result<bool> has(std::string_view name) const;
  // The text of a small file; empty if it does not exist.
  Result<std::optional<std::string>> read_text(std::string_view name) const;

 private:
  std::string path_;
  ReadOptions options_;
  std::optional<std::vector<ListedFile>> listed_;
};

}  // namespace ballast
