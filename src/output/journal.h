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

// Remembers, in a file of its own, which bytes of an output have reached the disk, so that work that broke off can go on.
// Thread-safe.
class Journal {
 public:
  // Goes on with the journal at `path` if it is about the same work, else begins a new one. `sync` makes sure that all bytes
  // added so far are on the disk.
  static Result<Journal> open(std::string path, std::string_view key, std::function<Result<void>()> sync);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal() = default;

  // Whether a run before this one has written these bytes of a file.
  bool has(std::size_t file, std::uint64_t begin, std::uint64_t end) const;

  // Up to where all bytes from `begin` on were.
  std::uint64_t done_until(std::size_t file, std::uint64_t begin) const;

  Result<void> add(std::size_t file, std::uint64_t begin, std::uint64_t end);

  // Writes down what was added since the last time.
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
  std::map<std::size_t, std::map<std::uint64_t, std::uint64_t>> done_;  // by file: begin to end, apart from each other
  std::mutex mutex_;
  std::vector<Record> pending_;
  std::uint64_t pending_bytes_ = 0;
};

}  // namespace ballast
