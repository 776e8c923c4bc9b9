#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "sink/output_file.h"

namespace ballast {

// Whether a file of a model directory holds weights, or says where they are: what a new set of weights takes the place of.
bool is_weights_name(std::string_view name);

// A model directory that is filled in one step, once all its files are whole. A directory that holds weights already is replaced
// by one that has the new files, and of the old ones those that are not weights: whenever the process dies, the directory is the
// old one or the new one. A directory without weights gets the files one by one, the first added first.
class OutputDirectory {
 public:
  static Result<OutputDirectory> create(const std::string& path);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  const std::string& path() const { return path_; }

  // The folder for files that are kept when the directory is not committed.
  std::string incomplete() const { return path_ + (mode_ == Mode::kFill ? "/.incomplete" : ".incomplete"); }

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
};

}  // namespace ballast
