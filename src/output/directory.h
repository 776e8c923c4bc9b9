#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"
#include "output/file.h"

namespace ballast {

// Opens and locks a directory. Returns an empty descriptor if another process has locked it.
FileDescriptor lock_directory(const std::string& path);

// Whether an earlier run has left partial files that a run for the same directory can resume from.
bool has_incomplete(const std::string& path);

// A model directory whose files appear together, once all are complete. An existing model is replaced atomically: the new
// directory has the new files and those of the old files that are not part of a model. If the process dies, the path is either
// the old directory or the new one. A directory without a model is filled in place, one file at a time, in the order in which
// they were added. Names may have folders: 1_Pooling/config.json.
class OutputDirectory {
 public:
  // Also removes the leftovers of processes that died in commit() for this directory.
  static Result<OutputDirectory> create(const std::string& path);

  // The absolute path of an output directory, which need not exist. Also removes the leftovers.
  static Result<std::string> resolve(const std::string& path);
  // An unused path beside `target` for its new content, which the next resolve() removes unless it is locked.
  static std::string staging_path(const std::string& target);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  const std::string& path() const { return path_; }

  // The folder for partial files, which survive if the directory is not committed.
  std::string incomplete() const { return mode_ == Mode::kFill ? incomplete_inside() : incomplete_beside(); }
  std::string incomplete_inside() const { return path_ + "/.incomplete"; }
  std::string incomplete_beside() const { return path_ + ".incomplete"; }

  // Creates a file for commit().
  Result<OutputFile> add(std::string_view name) const;

  Result<void> commit(std::vector<OutputFile>& files, bool sync);

 private:
  enum class Mode { kNew, kReplace, kFill };
  OutputDirectory(std::string path, Mode mode) : path_(std::move(path)), mode_(mode) {}
  Result<void> fill(std::vector<OutputFile>& files, bool sync) const;
  Result<void> stage(std::vector<OutputFile>& files, bool sync);
  std::string name_of(const OutputFile& file) const { return file.path().substr(path_.size() + 1); }
  Result<void> carry_over(const std::vector<OutputFile>& files) const;
  Result<void> carry_over(const std::string& folder, const std::set<std::string>& replaced) const;
  Result<void> swap_in();

  std::string path_;
  Mode mode_;
  std::string staging_;  // hidden directory: the new one before the swap, the old one after it
  FileDescriptor lock_;  // of `staging_`; tells other processes that this one is alive
};

}  // namespace ballast
