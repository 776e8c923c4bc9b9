#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <ballast/error.h>

#include "base/file_descriptor.h"
#include "source/source.h"

namespace ballast {

// A file that gets its final name when it is complete. Until then it is unnamed (O_TMPFILE), so that even a killed process leaves
// nothing behind; on filesystems without O_TMPFILE it has a hidden name. Errors have the code kWrite and contain the final path.
class OutputFile {
 public:
  // Will be published as `path`, or as its target if `path` is a symbolic link.
  static Result<OutputFile> create(std::string path) { return create(std::move(path), {}); }
  // The same, but the file is created in another folder of the same filesystem, and a link at `path` is replaced.
  static Result<OutputFile> create(std::string path, std::string folder);

  // A file that is named `partial` until it is published and stays there if it is not. Opens an existing one to resume it.
  static Result<OutputFile> create_partial(std::string path, std::string partial);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  Result<std::uint64_t> size() const;

  // The current path before the file is published; empty if it is unnamed.
  const std::string& partial_path() const { return hidden_; }

  // Truncates the file to 0 bytes.
  Result<void> clear();

  // Allocates `size` bytes, so that a lack of space is found now.
  Result<void> reserve(std::uint64_t size);

  // Thread-safe; writes may come in any order.
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  Result<void> copy_from(const Source& source, std::uint64_t from, std::uint64_t offset, std::uint64_t length);

  // Waits until the bytes are on disk.
  Result<void> sync();

  // Moves the file to its final path. An existing file is replaced; its mode is kept.
  Result<void> publish();
  // Moves the file to another path, which must not exist.
  Result<void> publish_new(const std::string& path);

 private:
  OutputFile(std::string path, std::string folder, FileDescriptor fd, std::string hidden);
  std::unexpected<Error> fail_here(std::string_view what, int error) const;
  Result<void> link_to(const std::string& name);

  std::string path_;
  std::string folder_;
  FileDescriptor fd_;
  std::string hidden_;       // path before it is published; empty if unnamed
  bool is_partial_ = false;  // stays if it is not published
};

// Fails for URIs, which can only be read.
Result<void> check_output_path(const std::string& path);

// The error for an output that cannot be created in its folder.
std::unexpected<Error> fail_in_folder(const std::string& path, int error);
// Fails for a path in the cache of the Hugging Face Hub, or a link into it: its files are shared, and must not change.
Result<void> check_not_cached(const std::string& path);

// Fails if `path` exists and is not a regular file or not writable.
Result<void> check_replaceable(const std::string& path);

// Flushes the names of the files in `folder` to disk.
Result<void> sync_folder(const std::string& folder);

// The folder that contains `path`; "." for a plain name.
std::string folder_of(const std::string& path);

// A random, hidden, unused path in `folder`: .ballast-…
std::string hidden_name(const std::string& folder);

}  // namespace ballast
