#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <ballast/error.h>

#include "base/file_descriptor.h"
#include "source/source.h"

namespace ballast {

// A file that gets its name when it is whole. Until then it has none where the system can do that, so that even a killed
// process leaves nothing behind; elsewhere it has a hidden one. Errors are kWrite and name the path it is meant for.
class OutputFile {
 public:
  // A file to be published as `path`, or as what that links to.
  static Result<OutputFile> create(std::string path) { return create(std::move(path), {}); }
  // The same, but made in another folder of the same filesystem, and in place of a link if `path` is one.
  static Result<OutputFile> create(std::string path, std::string folder);

  // A file that has the name `kept` until it is published, and keeps it if it is not; goes on with one that is there.
  static Result<OutputFile> create_kept(std::string path, std::string kept);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  Result<std::uint64_t> size() const;

  // Where its bytes are meanwhile; empty when they have no name.
  const std::string& kept_path() const { return hidden_; }

  // Drops what is in it.
  Result<void> clear();

  // Makes the file `size` bytes long, and finds out now whether there is room for them.
  Result<void> reserve(std::uint64_t size);

  // Thread-safe, in any order.
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  Result<void> copy_from(const Source& source, std::uint64_t from, std::uint64_t offset, std::uint64_t length);

  // Waits until the bytes are on the disk.
  Result<void> sync();

  // Gives the file its name, in place of what had it; the mode of a file replaced is kept.
  Result<void> publish();
  // The same under another name than was planned, in a folder that has no such file.
  Result<void> publish_new(const std::string& path);

 private:
  OutputFile(std::string path, std::string folder, FileDescriptor fd, std::string hidden);
  std::unexpected<Error> fail_here(std::string_view what, int error) const;
  Result<void> link_to(const std::string& name);

  std::string path_;
  std::string folder_;
  FileDescriptor fd_;
  std::string hidden_;  // the name it has meanwhile, if any
  bool kept_ = false;   // when it is not published
};

// Refuses URIs, which can only be read from.
Result<void> check_output_path(const std::string& path);

// Refuses to take the place of what is not a regular file, or may not be written.
Result<void> check_replaceable(const std::string& path);

// Makes names that were given to files of `folder` last.
Result<void> sync_folder(const std::string& folder);

// The folder that `path` lies in, "." for a plain name.
std::string folder_of(const std::string& path);

// A name in `folder` that nobody uses: hidden, and telling whose it is.
std::string hidden_name(const std::string& folder);

}  // namespace ballast
