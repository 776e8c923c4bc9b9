#include "output/tree.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "output/directory.h"
#include "output/file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

OutputTree::OutputTree(std::string target, std::string staging, bool resumable, FileDescriptor lock)
    : target_(std::move(target)), staging_(std::move(staging)), resumable_(resumable), lock_(std::move(lock)) {}

OutputTree::OutputTree(OutputTree&& other) noexcept
    : target_(std::move(other.target_)),
      staging_(std::exchange(other.staging_, {})),
      resumable_(other.resumable_),
      lock_(std::move(other.lock_)) {}

OutputTree::~OutputTree() {
  std::error_code ignored;
  if (staging_.empty()) return;
  if (!resumable_) {
    fs::remove_all(staging_, ignored);
  } else {
    ::rmdir(staging_.c_str());  // only if it is empty
  }
}

Result<OutputTree> OutputTree::create(const std::string& path, bool resumable) {
  TRY(check_output_path(path));
  const std::string target = TRY(OutputDirectory::resolve(path));
  std::error_code error;
  if (fs::exists(target, error) && !fs::is_directory(target, error)) {
    return fail(Errc::kWrite, "{}: cannot write: it exists and is not a directory", escape(path));
  }
  if (const std::string parent = folder_of(target); ::access(parent.c_str(), W_OK) != 0) {
    return fail_errno(Errc::kWrite, errno, "{}: cannot write", escape(path));
  }
  std::string staging = resumable ? target + ".incomplete" : OutputDirectory::staging_path(target);
  if (::mkdir(staging.c_str(), 0777) != 0 && (!resumable || errno != EEXIST)) {
    return fail_errno(Errc::kWrite, errno, "{}: cannot create the directory", escape(staging));
  }
  staging = fs::canonical(staging, error).string();
  FileDescriptor lock = lock_directory(staging);
  if (!lock) return fail(Errc::kWrite, "{}: another process is writing to it; wait for it to finish", escape(staging));
  std::string final_path = (fs::path(staging).parent_path() / fs::path(target).filename()).string();
  return OutputTree(std::move(final_path), std::move(staging), resumable, std::move(lock));
}

std::string OutputTree::final_path(const std::string& path) const {
  const bool is_below = path.starts_with(staging_) && (path.size() == staging_.size() || path[staging_.size()] == '/');
  return is_below ? target_ + path.substr(staging_.size()) : path;
}

Error OutputTree::with_final_path(Error error) const {
  const std::string from = escape(staging_ + "/");
  const std::string to = escape(target_ + "/");
  for (std::size_t at = error.message.find(from); at != std::string::npos; at = error.message.find(from, at + to.size())) {
    error.message.replace(at, from.size(), to);
  }
  return error;
}

std::vector<std::string> OutputTree::existing() const { return names_in(target_); }

Result<void> OutputTree::commit(const std::vector<std::string>& names, bool sync) {
  for (const std::string& name : names_in(staging_)) {
    std::error_code ignored;
    if (std::ranges::find(names, name) == names.end()) fs::remove_all(fs::path(staging_) / name, ignored);
  }
  if (sync) TRY(sync_folder(staging_));
  std::error_code error;
  const bool replaces = fs::exists(target_, error);
  struct stat replaced{};
  if (replaces && ::stat(target_.c_str(), &replaced) == 0) ::chmod(staging_.c_str(), replaced.st_mode & 07777U);
  if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0) {
    return fail_errno(Errc::kWrite, errno, "{}: cannot move the directory into place", escape(target_));
  }
  const std::string old = std::exchange(staging_, {});
  if (replaces) fs::remove_all(old, error);
  return sync ? sync_folder(folder_of(target_)) : Result<void>();
}

}  // namespace ballast
