#include "calibrate/forward/hidden_states.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

// A file that has no name, so that nothing stays behind.
Result<FileDescriptor> open_temporary() {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  const std::string shown = escape(folder.string());
  if (failed) return fail(Errc::kWrite, "no folder for temporary files; set TMPDIR");
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  std::string name = (folder / "ballast-XXXXXX").string();
  file = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return fail_errno(Errc::kWrite, errno, "{}: cannot create a temporary file; set TMPDIR to another folder", shown);
  ::unlink(name.c_str());
  return file;
}

}  // namespace

Result<HiddenStates> HiddenStates::make(std::uint64_t tokens, std::uint64_t columns, std::uint64_t most_memory) {
  const auto values = checked_mul(tokens, columns);
  const auto bytes = values ? checked_mul(*values, sizeof(float)) : std::nullopt;
  if (!bytes) return fail(Errc::kInvalidArgument, "{} tokens with {} values each overflow 64 bits", tokens, columns);
  if (*bytes <= most_memory) return HiddenStates(columns, std::vector<float>(*values), FileDescriptor());
  FileDescriptor file = TRY(open_temporary());
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(*bytes)); error != 0) {
    return fail_errno(Errc::kWrite, error,
                      "cannot allocate {} bytes for hidden states in a temporary file; set TMPDIR to a folder "
                      "with more space, or use fewer tokens",
                      *bytes);
  }
  return HiddenStates(columns, {}, std::move(file));
}

Result<void> HiddenStates::read(std::uint64_t token, std::span<float> rows) const {
  if (!is_spilled()) {
    std::ranges::copy(std::span(memory_).subspan(token * columns_, rows.size()), rows.begin());
    return {};
  }
  auto bytes = std::as_writable_bytes(rows);
  for (std::uint64_t at = token * columns_ * sizeof(float); !bytes.empty();) {
    const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail_errno(Errc::kIo, count < 0 ? errno : EIO, "cannot read hidden states from a temporary file");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> HiddenStates::write(std::uint64_t token, std::span<const float> rows) {
  if (!is_spilled()) {
    std::ranges::copy(rows, memory_.begin() + static_cast<std::ptrdiff_t>(token * columns_));
    return {};
  }
  auto bytes = std::as_bytes(rows);
  for (std::uint64_t at = token * columns_ * sizeof(float); !bytes.empty();) {
    const ssize_t count = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail_errno(Errc::kWrite, count < 0 ? errno : EIO, "cannot write hidden states to a temporary file");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace ballast
