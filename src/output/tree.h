#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"

namespace ballast {

// A directory with subfolders that appears whole on commit(). Until then its content is written below path(), by any means. An
// existing directory at the final path is exchanged with the new one and removed. If it is not committed, the content is removed,
// or stays in OUT.incomplete for a later run.
class OutputTree {
 public:
  // `resumable`: path() is OUT.incomplete, and may have content of an earlier run.
  static Result<OutputTree> create(const std::string& path, bool resumable);

  OutputTree(OutputTree&& other) noexcept;
  OutputTree& operator=(OutputTree&&) = delete;
  ~OutputTree();

  const std::string& path() const { return staging_; }
  // The path that a file below path() has after commit(). Other paths stay as they are.
  std::string final_path(const std::string& path) const;
  // Replaces path() by the final path in the message of an error.
  Error with_final_path(Error error) const;

  // The names of an existing directory at the final path; none if there is no such directory.
  std::vector<std::string> existing() const;

  // Moves the directory into place. Removes entries at its top that are not among `names`, such as those of an earlier run.
  Result<void> commit(const std::vector<std::string>& names, bool sync);

 private:
  OutputTree(std::string target, std::string staging, bool resumable, FileDescriptor lock);

  std::string target_;
  std::string staging_;
  bool resumable_;
  FileDescriptor lock_;
};

}  // namespace ballast
