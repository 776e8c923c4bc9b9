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

// A place to read, and where its bytes go.
struct Range {
  std::uint64_t offset;
  std::span<std::byte> out;
};

// Bytes of a source, from the first to one past the last.
struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
};

// Bytes to read, wherever they are. Their number is fixed when the source is opened. Thread-safe.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual std::uint64_t size() const = 0;

  // Fills `out` from `offset` on, whole or not at all: an end before that is an error.
  virtual Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Fills many, in no order: what lies close together is read together, and several threads share what is much.
  virtual Result<void> read_ranges(std::span<const Range> ranges) const;

  // Moves bytes from `offset` on to a place in another file without passing them through this process, as far as the system can;
  // returns how many it moved.
  virtual std::uint64_t copy_to(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t place) const;

  // read_at() for large pieces that will not be read again soon: leaves no copy of them in the system's cache where the source
  // can avoid it, which takes an `out` whose address is congruent to `offset` modulo kDirectAlignment.
  virtual Result<void> read_direct(std::uint64_t offset, std::span<std::byte> out) const { return read_at(offset, out); }
  static constexpr std::size_t kDirectAlignment = 4096;

  // How many reads at a time are quickest; 0: as many as there are cores.
  virtual unsigned parallel_reads() const { return 0; }

  // Says what will be read next, about in this order, in place of what was said before. Sources that are far away read it ahead.
  virtual void expect(std::span<const Extent> extents) const { static_cast<void>(extents); }

  // An estimate of how much can be read without waiting for a device, from 0 to 1; 1 where nobody knows.
  virtual double cached_share() const { return 1; }

  // What changes with the bytes, for sources that are no files of this machine; empty where nobody knows.
  virtual std::string identity() const { return {}; }

  // All bytes in place, valid while the source lives. Sources that cannot, or were told not to, say kUnsupported.
  virtual Result<std::span<const std::byte>> map() const = 0;

  // Makes this range of map() writable. Writes stay in this process. Sources that cannot do so fail with kUnsupported.
  virtual Result<void> make_writable(std::uint64_t offset, std::uint64_t length) const;

  // Drops the mapped pages that lie wholly inside the range; they are read again when touched.
  virtual Result<void> release(std::uint64_t offset, std::uint64_t length) const = 0;
};

inline Result<void> Source::make_writable(std::uint64_t, std::uint64_t) const {
  return std::unexpected(Error{.code = Errc::kUnsupported, .message = "not a mapped file, so there are no writable views"});
}

inline std::uint64_t Source::copy_to(std::uint64_t, std::uint64_t, int, std::uint64_t) const { return 0; }

enum class MapMode {
  kReadOnly,
  kCopyOnWrite,  // pages that are written to become this process's own
};

// Opens a regular file. Errors do not name it: the caller knows what the path stands for.
Result<std::unique_ptr<Source>> open_file(const std::string& path, Access access, MapMode mode = MapMode::kReadOnly);

// Borrows `bytes`.
std::unique_ptr<Source> open_memory(std::span<const std::byte> bytes);

// Pieces one after another, as if they were one. The first is owned, the others are borrowed.
std::unique_ptr<Source> open_pieces(std::string first, std::vector<std::span<const std::byte>> others);

}  // namespace ballast
