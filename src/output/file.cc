#include "output/file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/path/hub_folder.h"
#include "source/uri.h"

namespace ballast {
namespace {

std::string descriptor_path(const FileDescriptor& fd) { return fmt::format("/proc/self/fd/{}", fd.get()); }

// The target of a symbolic link: the file that an ordinary write would change.
std::string follow_links(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

struct Opened {
  FileDescriptor fd;
  std::string hidden;  // empty for a file without a name
};

Opened open_unnamed(const std::string& folder) {
  constexpr mode_t kMode = 0666;  // less the umask
  FileDescriptor unnamed(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  if (unnamed && ::access(descriptor_path(unnamed).c_str(), F_OK) == 0) return {.fd = std::move(unnamed), .hidden = {}};
  std::string hidden = hidden_name(folder);
  FileDescriptor named(::open(hidden.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode));
  return {.fd = std::move(named), .hidden = std::move(hidden)};
}

}  // namespace

Result<void> check_not_cached(const std::string& path) {
  if (!is_hub_cached(path)) return {};
  return fail(Errc::kWrite,
              "{}: cannot write: it is in the Hugging Face cache, which other programs share; write to another path",
              escape(path));
}

Result<void> check_replaceable(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return {};
  if (S_ISDIR(status.st_mode)) return fail(Errc::kWrite, "{}: cannot write: it is a directory", escape(path));
  if (!S_ISREG(status.st_mode)) return fail(Errc::kWrite, "{}: cannot write: not a regular file", escape(path));
  if (::access(path.c_str(), W_OK) != 0) return fail_errno(Errc::kWrite, errno, "{}: cannot write", escape(path));
  return {};
}

std::string folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string hidden_name(const std::string& folder) {
  std::random_device random;
  return fmt::format("{}/.ballast-{:08x}{:08x}", folder, random(), random());
}

Result<void> sync_folder(const std::string& folder) {
  const FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && ::fsync(fd.get()) == 0) return {};
  // Some filesystems cannot sync a folder. The file itself is already on disk.
  if (errno == EINVAL) return {};
  return fail_errno(Errc::kWrite, errno, "{}: cannot flush the folder to disk", escape(folder));
}

OutputFile::OutputFile(std::string path, std::string folder, FileDescriptor fd, std::string hidden)
    : path_(std::move(path)), folder_(std::move(folder)), fd_(std::move(fd)), hidden_(std::move(hidden)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(std::move(other.folder_)),
      fd_(std::move(other.fd_)),
      hidden_(std::exchange(other.hidden_, {})),
      is_partial_(other.is_partial_) {}

OutputFile::~OutputFile() {
  if (!hidden_.empty() && !is_partial_) ::unlink(hidden_.c_str());
}

std::unexpected<Error> OutputFile::fail_here(std::string_view what, int error) const {
  return fail_errno(Errc::kWrite, error, "{}: {}", escape(path_), what);
}

Result<void> check_output_path(const std::string& path) {
  if (!is_uri(path)) return {};
  return fail(Errc::kInvalidArgument, "{}: cannot write to a URI; give a local path", shown(path));
}

std::unexpected<Error> fail_in_folder(const std::string& path, int error) {
  auto failed = fail_errno(Errc::kWrite, error, "{}: cannot write", escape(path));
  if (error == ENOENT) failed.error().message += "; create its folder first";
  return failed;
}

Result<OutputFile> OutputFile::create(std::string path, std::string folder) {
  TRY(check_output_path(path));
  if (path.find('\0') != std::string::npos) {
    return fail(Errc::kWrite, "{}: cannot write: the path contains a NUL byte", escape(path));
  }
  if (folder.empty()) {
    TRY(check_not_cached(path));
    path = follow_links(path);
    folder = folder_of(path);
    TRY(check_replaceable(path));
  }
  auto [fd, hidden] = open_unnamed(folder);
  if (!fd) return fail_in_folder(path, errno);
  return OutputFile(std::move(path), std::move(folder), std::move(fd), std::move(hidden));
}

Result<OutputFile> OutputFile::create_partial(std::string path, std::string partial) {
  FileDescriptor fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return fail_errno(Errc::kWrite, errno, "{}: cannot write", escape(partial));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Errc::kWrite, "{}: another process is writing it; wait for it to finish", escape(partial));
  }
  std::string folder = folder_of(partial);
  OutputFile file(std::move(path), std::move(folder), std::move(fd), std::move(partial));
  file.is_partial_ = true;
  return file;
}

Result<std::uint64_t> OutputFile::size() const {
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0) return fail_here("cannot get the file size", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

Result<void> OutputFile::clear() {
  if (::ftruncate(fd_.get(), 0) != 0) return fail_here("cannot truncate the file", errno);
  return {};
}

Result<void> OutputFile::reserve(std::uint64_t size) {
  if (size == 0) return {};
  int failed = 0;
  do {
    failed = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == EOPNOTSUPP || failed == ENOSYS) failed = ::ftruncate(fd_.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
  if (failed != 0) return fail_here(fmt::format("cannot allocate {} bytes", size), failed);
  return {};
}

Result<void> OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  constexpr std::size_t kMostPerCall = std::size_t{1} << 30;  // the kernel's limit is 2 GiB - 4 KiB
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kMostPerCall), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_here(fmt::format("cannot write {} bytes at offset {}", bytes.size(), offset), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> OutputFile::copy_from(const Source& source, std::uint64_t from, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t moved = source.copy_to(from, length, fd_.get(), offset);
  if (moved == length) return {};
  // Copy the rest through memory. This also tells read errors from write errors.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  const Bytes buffer(allocate_bytes(std::min(kPiece, length - moved)));
  for (std::uint64_t at = moved; at < length; at += kPiece) {
    const std::span<std::byte> piece(buffer.get(), std::min(kPiece, length - at));
    TRY(source.read_at(from + at, piece));
    TRY(write_at(offset + at, piece));
  }
  return {};
}

Result<void> OutputFile::sync() {
  if (::fsync(fd_.get()) != 0) return fail_here("cannot flush to disk", errno);
  return {};
}

Result<void> OutputFile::link_to(const std::string& name) {
  const int linked = hidden_.empty() ? ::linkat(AT_FDCWD, descriptor_path(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW)
                                     : ::rename(hidden_.c_str(), name.c_str());
  if (linked != 0) return fail_here("cannot move the file into place", errno);
  hidden_ = name;
  return {};
}

Result<void> OutputFile::publish_new(const std::string& path) {
  TRY(link_to(path));
  hidden_.clear();
  return {};
}

Result<void> OutputFile::publish() {
  struct stat replaced{};
  if (::stat(path_.c_str(), &replaced) != 0) {
    auto published = publish_new(path_);
    if (published || published.error().system_error != EEXIST) return published;
    if (::stat(path_.c_str(), &replaced) != 0) return published;  // otherwise another process created it meanwhile: replace it
  }
  ::fchmod(fd_.get(), replaced.st_mode & 07777U);
  if (hidden_.empty()) {
    TRY(link_to(hidden_name(folder_)));
  }
  if (::rename(hidden_.c_str(), path_.c_str()) != 0) return fail_here("cannot replace the file", errno);
  hidden_.clear();
  return {};
}

}  // namespace ballast
