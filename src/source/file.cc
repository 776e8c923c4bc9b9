#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fmt/std.h>

#include "base/fail.h"
#include "source/source.h"

namespace ballast {
namespace {

std::unexpected<Error> fail_errno(std::string_view what, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  return fail(absent ? Errc::kNotFound : Errc::kIo, "{}: {}", what, std::generic_category().message(error));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Filesystems on which a page fault is a round trip: reads in large pieces are many times faster there.
bool is_on_network(int fd) {
  constexpr std::array<std::uint32_t, 14> kNetworks{
      NFS_SUPER_MAGIC, SMB_SUPER_MAGIC,  CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, CEPH_SUPER_MAGIC,
      AFS_SUPER_MAGIC, CODA_SUPER_MAGIC, V9FS_MAGIC,       FUSE_SUPER_MAGIC, OCFS2_SUPER_MAGIC,
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x01161970,  // GFS2
  };
  struct statfs filesystem{};
  return ::fstatfs(fd, &filesystem) == 0 &&
         std::ranges::find(kNetworks, static_cast<std::uint32_t>(filesystem.f_type)) != kNetworks.end();
}

class FileSource final : public Source {
 public:
  FileSource(FileDescriptor fd, std::uint64_t size, bool mappable) : fd_(std::move(fd)), size_(size), mappable_(mappable) {}

  ~FileSource() override {
    if (map_ != nullptr) ::munmap(map_, size_);
  }

  std::uint64_t size() const override { return size_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return fail(Errc::kIo, "{} bytes at {} lie past the end ({} bytes)", out.size(), offset, size_);
    }
    constexpr std::size_t kMostPerCall = std::size_t{1} << 30;  // the kernel moves at most 2 GiB - 4 KiB
    while (!out.empty()) {
      const ssize_t count = ::pread(fd_.get(), out.data(), std::min(out.size(), kMostPerCall), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(fmt::format("reading {} bytes at {}", out.size(), offset), errno);
      if (count == 0) {
        if (auto checked = check_size(); !checked) return checked;
        return fail(Errc::kIo, "the file ends at byte {}, it had {}", offset, size_);
      }
      out = out.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  std::uint64_t copy_to(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t place) const override {
    auto from = static_cast<off_t>(offset);
    auto to = static_cast<off_t>(place);
    std::uint64_t moved = 0;
    while (moved < length) {
      const ssize_t count = ::copy_file_range(fd_.get(), &from, file, &to, length - moved, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      moved += static_cast<std::uint64_t>(count);
    }
    return moved;
  }

  Result<std::span<const std::byte>> map() const override {
    if (!mappable_) {
      return fail(Errc::kUnsupported, "opened without a map, so there are no views: use read(), or open with Access::kMmap");
    }
    if (size_ == 0) return std::span<const std::byte>();
    if (auto checked = check_size(); !checked) return std::unexpected(checked.error());
    const std::scoped_lock lock(mutex_);
    if (map_ == nullptr) {
      void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
      if (address == MAP_FAILED) return fail_errno(fmt::format("mapping {} bytes", size_), errno);
      map_ = address;
    }
    return std::span(static_cast<const std::byte*>(map_), size_);
  }

  Result<void> release(std::uint64_t offset, std::uint64_t length) const override {
    const std::scoped_lock lock(mutex_);
    if (map_ == nullptr) return {};
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = (offset + page - 1) / page * page;
    const std::uint64_t last = (offset + length) / page * page;
    if (first >= last) return {};
    if (::madvise(static_cast<std::byte*>(map_) + first, last - first, MADV_DONTNEED) != 0) return fail_errno("madvise", errno);
    return {};
  }

 private:
  Result<void> check_size() const {
    struct stat now{};
    if (::fstat(fd_.get(), &now) != 0) return fail_errno("fstat", errno);
    if (std::cmp_less(now.st_size, size_)) {
      return fail(Errc::kIo, "file was cut short while open: it has {} bytes, it had {}", now.st_size, size_);
    }
    return {};
  }

  FileDescriptor fd_;
  std::uint64_t size_;
  bool mappable_;
  mutable std::mutex mutex_;
  mutable void* map_ = nullptr;  // made at the first view, so that opening does not pay for it
};

}  // namespace

Result<std::unique_ptr<Source>> open_file(const std::string& path, Access access) {
  if (path.find('\0') != std::string::npos) return fail(Errc::kInvalidArgument, "cannot open: the path holds a NUL byte");
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block us
  if (fd.get() < 0) return fail_errno("cannot open", errno);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("cannot open", errno);
  if (!S_ISREG(status.st_mode)) return fail(Errc::kIo, "is not a regular file");
  const bool mappable = access == Access::kMmap || (access == Access::kAuto && !is_on_network(fd.get()));
  return std::make_unique<FileSource>(std::move(fd), static_cast<std::uint64_t>(status.st_size), mappable);
}

}  // namespace ballast
