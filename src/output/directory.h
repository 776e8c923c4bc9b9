#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"
#include "output/file.h"

namespace ballast {

// Opens and locks a directory; empty if another process has locked it.
FileDescriptor lock_directory(const std::string& path);

// A model directory that is filled in one step, once all its files are whole. A directory that holds a model already is replaced
// by one that has the new files, and of the old ones those that are not the model: whenever the process dies, the directory is
// the old one or the new one. Folders cannot be in two directories at once, so a directory with folders is not replaced. One
// without a model gets the files one by one, the first added first.
class OutputDirectory {
 public:
  // Also removes what processes that died in commit() have left of this directory.
  static Result<OutputDirectory> create(const std::string& path);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  const std::string& path() const { return path_; }

  // The folder for files that are kept when the directory is not committed.
  std::string incomplete() const { return mode_ == Mode::kFill ? incomplete_inside() : incomplete_beside(); }
  std::string incomplete_inside() const { return path_ + "/.incomplete"; }
  std::string incomplete_beside() const { return path_ + ".incomplete"; }

  // A new file of the directory, to be handed to commit().
  Result<OutputFile> add(std::string_view name) const;

  Result<void> commit(std::vector<OutputFile>& files, bool sync);

 private:
  enum class Mode { kNew, kReplace, kFill };
  OutputDirectory(std::string path, Mode mode) : path_(std::move(path)), mode_(mode) {}
  Result<void> fill(std::vector<OutputFile>& files, bool sync) const;
  Result<void> stage(std::vector<OutputFile>& files, bool sync);
  Result<void> carry_over(const std::vector<OutputFile>& files) const;
  Result<void> swap_in();

  std::string path_;
  Mode mode_;
  std::string staging_;  // the hidden directory that is to become the visible one, or was it before
  FileDescriptor lock_;  // of that one: tells other processes that this one is alive
};

}  // namespace ballast
