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

// A local or remote folder. Error messages contain the folder or file.
class Folder {
 public:
  // Lists the folder once, now.
  static Result<Folder> list(std::string path, const ReadOptions& options = {});
  // Does not list the folder: some servers allow reading files but not listing them.
  explicit Folder(std::string path, ReadOptions options = {}) : path_(std::move(path)), options_(std::move(options)) {}

  const std::string& path() const { return path_; }
  Result<std::vector<ListedFile>> files() const;  // sorted by name
  // Also the files of the folders below, without hidden ones; a folder that is a link is listed as not regular.
  Result<std::vector<ListedFile>> tree() const;
  Result<bool> has(std::string_view name) const;
  // The text of a small file; empty if it does not exist.
  Result<std::optional<std::string>> read_text(std::string_view name) const;

 private:
  std::string path_;
  ReadOptions options_;
  std::optional<std::vector<ListedFile>> listed_;
};

}  // namespace ballast
