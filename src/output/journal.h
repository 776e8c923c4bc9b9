#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"

namespace ballast {

// Records in a separate file which bytes of an output are on disk, so that interrupted work can resume. Thread-safe.
class Journal {
 public:
  // Opens the journal at `path` if it has the same key, else starts a new one. `sync` must flush all bytes that were added so far
  // to disk.
  static Result<Journal> open(std::string path, std::string_view key, std::function<Result<void>()> sync);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal() = default;

  // Whether an earlier run has written these bytes of a file.
  bool has(std::size_t file, std::uint64_t begin, std::uint64_t end) const;

  // The end of the bytes that an earlier run has written without a gap from `begin`.
  std::uint64_t done_until(std::size_t file, std::uint64_t begin) const;

  Result<void> add(std::size_t file, std::uint64_t begin, std::uint64_t end);

  // Writes the records that were added since the last flush.
  Result<void> flush();

  const std::string& path() const { return path_; }

 private:
  struct Record {
    std::uint64_t file;
    std::uint64_t begin;
    std::uint64_t end;
  };
  Journal(std::string path, FileDescriptor fd, std::function<Result<void>()> sync);
  void read(std::string_view records);
  Result<void> flush_locked();

  std::string path_;
  FileDescriptor fd_;
  std::function<Result<void>()> sync_;
  std::map<std::size_t, std::map<std::uint64_t, std::uint64_t>> done_;  // by file: begin to end of ranges that do not touch
  std::mutex mutex_;
  std::vector<Record> pending_;
  std::uint64_t pending_bytes_ = 0;
};

}  // namespace ballast
