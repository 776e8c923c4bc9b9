#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fmt/std.h>

#include "base/fail.h"
#include "base/file_descriptor.h"
#include "base/try.h"
#include "source/source.h"

namespace ballast {
namespace {

Errc code_of(int error) { return error == ENOENT || error == ENOTDIR ? Errc::kNotFound : Errc::kIo; }

// Filesystems where a page fault is a network round trip. Large reads are many times faster there.
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
  FileSource(FileDescriptor fd, std::uint64_t size, bool mappable, MapMode mode)
      : fd_(std::move(fd)), size_(size), mappable_(mappable), mode_(mode) {}

  ~FileSource() override {
    if (map_ != nullptr) ::munmap(map_, size_);
  }

  std::uint64_t size() const override { return size_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!contains(offset, out.size())) {
      return fail(Errc::kIo, "cannot read {} bytes at offset {}: the size is {} bytes", out.size(), offset, size_);
    }
    while (!out.empty()) {
      const ssize_t count = ::pread(fd_.get(), out.data(), std::min(out.size(), kMostPerCall), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(Errc::kIo, errno, "cannot read {} bytes at offset {}", out.size(), offset);
      if (count == 0) {
        TRY(check_size());
        return fail(Errc::kIo, "the file ends at byte {}, but it had {} bytes", offset, size_);
      }
      out = out.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  std::uint64_t copy_to(std::uint64_t offset, std::uint64_t length, int file, std::uint64_t position) const override {
    auto from = static_cast<off_t>(offset);
    auto to = static_cast<off_t>(position);
    std::uint64_t moved = 0;
    while (moved < length) {
      const ssize_t count = ::copy_file_range(fd_.get(), &from, file, &to, length - moved, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      moved += static_cast<std::uint64_t>(count);
    }
    return moved;
  }

  Result<void> read_direct(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t head = (kDirectAlignment - offset % kDirectAlignment) % kDirectAlignment;
    const bool congruent = reinterpret_cast<std::uintptr_t>(out.data()) % kDirectAlignment == offset % kDirectAlignment;
    if (!congruent || out.size() < head + kDirectAlignment || !contains(offset, out.size())) return read_at(offset, out);
    TRY(read_at(offset, out.first(head)));
    const std::size_t direct = read_whole_pages(offset + head, out.subspan(head));
    return read_at(offset + head + direct, out.subspan(head + direct));
  }

  double cached_share() const override {
    constexpr std::uint64_t kSamples = 64;
    const std::uint64_t stride = size_ / kSamples;
    if (stride == 0) return 1;
    // Probing a page that is not cached starts to read it, so every call must probe different positions.
    std::minstd_rand random(static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count()));
    std::uniform_int_distribution<std::uint64_t> within_stride(0, stride - 1);
    std::uint64_t cached = 0;
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      std::byte sample{};
      const iovec space{.iov_base = &sample, .iov_len = 1};
      const auto at = static_cast<off_t>(i * stride + within_stride(random));
      const ssize_t count = ::preadv2(fd_.get(), &space, 1, at, RWF_NOWAIT);
      if (count < 0 && errno != EAGAIN) return 1;  // the filesystem does not support RWF_NOWAIT
      cached += count > 0 ? 1 : 0;
    }
    return static_cast<double>(cached) / kSamples;
  }

  Result<std::span<const std::byte>> map() const override {
    if (!mappable_) {
      return fail(
          Errc::kUnsupported,
          "view() is not available because the file is not memory-mapped (pread access or a network filesystem); use read()");
    }
    if (size_ == 0) return std::span<const std::byte>();
    TRY(check_size());
    const std::scoped_lock lock(mutex_);
    if (map_ == nullptr) {
      // Few pages of a writable mapping are ever written, so no memory is reserved for all of them.
      const bool writable = mode_ == MapMode::kCopyOnWrite;
      void* const address = ::mmap(nullptr, size_, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                                   writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_PRIVATE, fd_.get(), 0);
      if (address == MAP_FAILED) return fail_errno(Errc::kIo, errno, "cannot map {} bytes", size_);
      map_ = address;
    }
    return std::span(static_cast<const std::byte*>(map_), size_);
  }

  Result<void> make_writable(std::uint64_t offset, std::uint64_t length) const override {
    TRY(map());
    if (length == 0 || mode_ == MapMode::kCopyOnWrite) return {};
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = offset / page * page;
    if (::mprotect(static_cast<std::byte*>(map_) + first, offset + length - first, PROT_READ | PROT_WRITE) != 0)
      return fail_errno(Errc::kUnsupported, errno, "mprotect");
    return {};
  }

  Result<void> release(std::uint64_t offset, std::uint64_t length) const override {
    const std::scoped_lock lock(mutex_);
    if (map_ == nullptr) return {};
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = (offset + page - 1) / page * page;
    const std::uint64_t last = (offset + length) / page * page;
    if (first >= last) return {};
    if (::madvise(static_cast<std::byte*>(map_) + first, last - first, MADV_DONTNEED) != 0)
      return fail_errno(Errc::kIo, errno, "cannot release mapped pages");
    return {};
  }

 private:
  bool contains(std::uint64_t offset, std::uint64_t length) const { return offset <= size_ && length <= size_ - offset; }

  Result<void> check_size() const {
    struct stat now{};
    if (::fstat(fd_.get(), &now) != 0) return fail_errno(Errc::kIo, errno, "cannot get the file size");
    if (std::cmp_less(now.st_size, size_)) {
      return fail(Errc::kIo, "file was truncated while open: it has {} bytes, it had {}", now.st_size, size_);
    }
    return {};
  }

  // Reads as many whole pages as possible with O_DIRECT and returns the number of bytes. If the filesystem does not support
  // O_DIRECT or the file was truncated, the caller reads the rest with read_at(), which also reports the error.
  std::size_t read_whole_pages(std::uint64_t offset, std::span<std::byte> out) const {
    const int fd = direct_fd();
    const std::size_t whole = out.size() / kDirectAlignment * kDirectAlignment;
    std::size_t done = 0;
    while (fd >= 0 && done < whole && !direct_refused_) {
      const ssize_t count =
          ::pread(fd, out.data() + done, std::min(whole - done, kMostPerCall), static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EINVAL) direct_refused_ = true;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
      if (static_cast<std::size_t>(count) % kDirectAlignment != 0) break;
    }
    return done;
  }

  // Opened on first use through the existing descriptor, so that it is the same file even if it was renamed; -1 on failure.
  int direct_fd() const {
    const std::scoped_lock lock(mutex_);
    if (!direct_) direct_.emplace(::open(fmt::format("/proc/self/fd/{}", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    return direct_->get();
  }

  static constexpr std::size_t kMostPerCall = std::size_t{1} << 30;  // the kernel's limit is 2 GiB - 4 KiB

  FileDescriptor fd_;
  std::uint64_t size_;
  bool mappable_;
  MapMode mode_;
  mutable std::mutex mutex_;
  mutable void* map_ = nullptr;  // mapped at the first view, which keeps opening fast
  mutable std::optional<FileDescriptor> direct_;
  mutable std::atomic<bool> direct_refused_ = false;
};

}  // namespace

Result<std::unique_ptr<Source>> open_file(const std::string& path, Access access, MapMode mode) {
  if (path.find('\0') != std::string::npos) return fail(Errc::kInvalidArgument, "cannot open: the path contains a NUL byte");
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // O_NONBLOCK: do not wait for the writer of a FIFO
  if (!fd) return fail_errno(code_of(errno), errno, "cannot open");
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail_errno(code_of(errno), errno, "cannot open");
  if (!S_ISREG(status.st_mode)) return fail(Errc::kIo, "not a regular file");
  const bool mappable = access == Access::kMmap || (access == Access::kAuto && !is_on_network(fd.get()));
  return std::make_unique<FileSource>(std::move(fd), static_cast<std::uint64_t>(status.st_size), mappable, mode);
}

}  // namespace ballast
