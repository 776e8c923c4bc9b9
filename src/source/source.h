#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/open_options.h>

namespace ballast {

// A read of out.size() bytes at `offset`.
struct Range {
  std::uint64_t offset;
  std::span<std::byte> out;
};

// A half-open range of bytes.
struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
};

// Bytes in a file, in memory or on a server. The size is fixed when the source is opened. Thread-safe.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual std::uint64_t size() const = 0;

  // Fills all of `out` from `offset`. Reaching the end before that is an error.
  virtual Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Reads many ranges, in any order. Ranges that are close together are read in one operation; large reads use several threads.
  virtual Result<void> read_ranges(std::span<const Range> ranges) const;

  // Copies bytes to `position` in another file inside the kernel, if the system can do that. Returns the number of bytes copied,
  // which may be less than `length`; the caller copies the rest.
  virtual std::uint64_t copy_to(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t position) const;

  // Like read_at(), for large reads that will not be repeated soon: bypasses the page cache if possible. That needs an `out`
  // whose address is congruent to `offset` modulo kDirectAlignment.
  virtual Result<void> read_direct(std::uint64_t offset, std::span<std::byte> out) const { return read_at(offset, out); }
  static constexpr std::size_t kDirectAlignment = 4096;

  // The best number of concurrent reads; 0: the number of cores.
  virtual unsigned parallel_reads() const { return 0; }

  // Announces the reads that follow, roughly in this order, and replaces the previous announcement. Remote sources read ahead.
  virtual void expect(std::span<const Extent> extents) const { static_cast<void>(extents); }

  // An estimate of the share of bytes in the page cache, from 0 to 1; 1 if unknown.
  virtual double cached_share() const { return 1; }

  // A value that changes when the content changes, such as an ETag. Empty for local files and if unknown.
  virtual std::string identity() const { return {}; }

  // All bytes without a copy, valid while the source lives. Fails with kUnsupported if the source cannot map them or was opened
  // without mapping.
  virtual Result<std::span<const std::byte>> map() const = 0;

  // Makes this range of map() writable. Writes stay in this process. Sources that cannot do so fail with kUnsupported.
  virtual Result<void> make_writable(std::uint64_t offset, std::uint64_t length) const;

  // Drops the mapped pages that are completely inside the range. They are read again on the next access.
  virtual Result<void> release(std::uint64_t offset, std::uint64_t length) const = 0;
};

inline Result<void> Source::make_writable(std::uint64_t, std::uint64_t) const {
  return std::unexpected(Error{.code = Errc::kUnsupported, .message = "not a mapped file, so there are no writable views"});
}

inline std::uint64_t Source::copy_to(std::uint64_t, std::uint64_t, int, std::uint64_t) const { return 0; }

enum class MapMode {
  kReadOnly,
  kCopyOnWrite,  // writes are private to this process
};

// Opens a regular file. Error messages do not contain the path; the caller adds it.
Result<std::unique_ptr<Source>> open_file(const std::string& path, Access access, MapMode mode = MapMode::kReadOnly);

// `bytes` must outlive the source.
std::unique_ptr<Source> open_memory(std::span<const std::byte> bytes);

// Concatenates pieces without copying them. The source owns `first`; the others must outlive it.
std::unique_ptr<Source> open_pieces(std::string first, std::vector<std::span<const std::byte>> others);

}  // namespace ballast
