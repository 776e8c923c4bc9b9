#include "output/directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::unexpected<Error> fail_here(const std::string& path, std::string_view what, int error) {
  return fail_errno(Errc::kWrite, error, "{}: {}", escape(path), what);
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

Result<std::vector<fs::directory_entry>> list(const std::string& path) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) entries.push_back(*entry);
  if (error) return fail_here(path, "cannot list the directory", error.value());
  return entries;
}

bool same_device(const std::string& a, const std::string& b) {
  struct stat x{};
  struct stat y{};
  return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev;
}

// Partial files of a process that died while it filled the directory.
constexpr std::string_view kIncomplete = ".incomplete";

bool is_directory(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored) && !entry.is_symlink(ignored);
}

// The suffix of staging directories for `path`.
std::string staging_suffix(const std::string& path) {
  constexpr std::size_t kMost = 200;  // a name may have 255 bytes
  return fmt::format("-{}", file_name(path).substr(0, kMost));
}

// Removes staging directories for `path`, except those that are locked, that is, in use by a running process.
void remove_stale(const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string example = file_name(hidden_name(folder)) + staging_suffix(path);
  const std::string_view begin = std::string_view(example).substr(0, example.find('-'));
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() != example.size() || !name.starts_with(begin) || !name.ends_with(staging_suffix(path))) continue;
    const FileDescriptor lock = lock_directory(entry->path().string());
    if (!lock) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
  }
}

// Why a directory cannot be replaced; empty if it can.
std::string replacement_obstacle(const std::string& path) {
  const std::string folder = folder_of(path);
  if (!same_device(path, folder)) return "it is a mount point";
  return ::access(folder.c_str(), W_OK) == 0 ? "" : fmt::format("{} is not writable", escape(folder));
}

Result<void> make_folders(const std::string& file) {
  std::error_code error;
  fs::create_directories(folder_of(file), error);
  return error ? Result<void>(fail_here(folder_of(file), "cannot create the directory", error.value())) : Result<void>();
}

}  // namespace

bool has_incomplete(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::canonical(path, ignored);
  return fs::exists(fmt::format("{}/{}/journal", whole.string(), kIncomplete), ignored) ||
         fs::exists(fmt::format("{}{}/journal", whole.string(), kIncomplete), ignored);
}

FileDescriptor lock_directory(const std::string& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      mode_(other.mode_),
      staging_(std::exchange(other.staging_, {})),
      lock_(std::move(other.lock_)) {}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

Result<std::string> OutputDirectory::resolve(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::exists(path, error) ? fs::canonical(path, error) : fs::absolute(path, error).lexically_normal();
  std::string target = whole.has_filename() ? whole.string() : whole.parent_path().string();
  if (error || target.empty()) return fail(Errc::kWrite, "'{}': cannot write: not a valid directory name", escape(path));

  TRY(check_not_cached(path));
  remove_stale(target);
  return target;
}

std::string OutputDirectory::staging_path(const std::string& target) {
  return hidden_name(folder_of(target)) + staging_suffix(target);
}

Result<OutputDirectory> OutputDirectory::create(const std::string& path) {
  std::string target = TRY(resolve(path));
  std::error_code error;
  if (!fs::exists(target, error)) {
    if (fs::is_symlink(path, error)) return fail(Errc::kWrite, "{}: cannot write: it is a broken symbolic link", escape(path));
    if (::access(folder_of(target).c_str(), W_OK) != 0) return fail_in_folder(path, errno);
    return OutputDirectory(std::move(target), Mode::kNew);
  }
  if (!fs::is_directory(target, error)) {
    return fail(Errc::kWrite,
                "{}: cannot write: it exists and is not a directory; the name of a single file must end in .safetensors or .mlx",
                escape(path));
  }
  const auto entries = TRY(list(target));
  const bool has_model = std::ranges::any_of(
      entries, [](const fs::directory_entry& entry) { return is_model_name(entry.path().filename().string()); });
  if (!has_model) return OutputDirectory(std::move(target), Mode::kFill);
  const std::string why = replacement_obstacle(target);
  if (!why.empty()) {
    return fail(Errc::kWrite, "{}: cannot replace the model in this directory: {}; choose a new directory", escape(path), why);
  }
  return OutputDirectory(std::move(target), Mode::kReplace);
}

Result<OutputFile> OutputDirectory::add(std::string_view name) const {
  return OutputFile::create(fmt::format("{}/{}", path_, name), mode_ == Mode::kFill ? path_ : folder_of(path_));
}

Result<void> OutputDirectory::commit(std::vector<OutputFile>& files, bool sync) {
  for (OutputFile& file : files) {
    if (!sync) break;
    TRY(file.sync());
  }
  if (mode_ == Mode::kFill) return fill(files, sync);
  TRY(stage(files, sync));
  TRY(swap_in());
  return sync ? sync_folder(folder_of(path_)) : Result<void>();
}

Result<void> OutputDirectory::fill(std::vector<OutputFile>& files, bool sync) const {
  for (const OutputFile& file : files) {
    TRY(check_replaceable(file.path()));
    if (folder_of(file.path()) != path_) TRY(check_not_cached(folder_of(file.path())));  // a folder in it may be a link
  }
  std::set<std::string> folders;
  for (OutputFile& file : files) {
    TRY(make_folders(file.path()));
    folders.insert(folder_of(file.path()));
    TRY(file.publish());
  }
  for (const std::string& folder : folders) {
    if (sync) TRY(sync_folder(folder));
  }
  return sync ? sync_folder(path_) : Result<void>();
}

Result<void> OutputDirectory::stage(std::vector<OutputFile>& files, bool sync) {
  std::string staging = staging_path(path_);
  if (::mkdir(staging.c_str(), 0777) != 0) return fail_here(path_, "cannot create the directory", errno);
  staging_ = std::move(staging);
  lock_ = lock_directory(staging_);
  if (mode_ == Mode::kReplace) {
    struct stat replaced{};
    if (::stat(path_.c_str(), &replaced) == 0) ::chmod(staging_.c_str(), replaced.st_mode & 07777U);
    TRY(carry_over(files));
  }
  std::set<std::string> folders{staging_};
  for (OutputFile& file : files) {
    const std::string path = staging_ + "/" + name_of(file);
    TRY(make_folders(path));
    folders.insert(folder_of(path));
    TRY(file.publish_new(path));
  }
  for (const std::string& folder : folders) {
    if (sync) TRY(sync_folder(folder));
  }
  return {};
}

// Hard-links the files that stay into the new directory.
Result<void> OutputDirectory::carry_over(const std::vector<OutputFile>& files) const {
  std::set<std::string> replaced{std::string(kIncomplete)};
  for (const OutputFile& file : files) replaced.insert(name_of(file));
  for (const fs::directory_entry& entry : TRY(list(path_))) {
    std::string name = entry.path().filename().string();
    if (is_parquet_part(name)) replaced.emplace(kParquetMetadataFile);  // it describes parts that are removed
    if (is_model_name(name)) replaced.insert(std::move(name));
  }
  return carry_over("", replaced);
}

// `folder` is empty, or ends with a slash. Folders cannot be hard-linked, so they are created again.
Result<void> OutputDirectory::carry_over(const std::string& folder, const std::set<std::string>& replaced) const {
  for (const fs::directory_entry& entry : TRY(list(path_ + "/" + folder))) {
    const std::string name = folder + entry.path().filename().string();
    if (replaced.contains(name)) continue;
    const std::string copy = staging_ + "/" + name;
    if (is_directory(entry)) {
      if (::mkdir(copy.c_str(), 0777) != 0) return fail_here(copy, "cannot create the directory", errno);
      TRY(carry_over(name + "/", replaced));
      continue;
    }
    if (::link(entry.path().c_str(), copy.c_str()) == 0) continue;
    std::error_code error;  // some systems forbid hard links to files of another user
    fs::copy(entry.path(), copy, fs::copy_options::copy_symlinks, error);
    if (error) return fail_here(entry.path().string(), "cannot copy the file to the new directory", error.value());
  }
  return {};
}

// Afterwards `staging_` is the old directory, if there was one. The destructor removes it.
Result<void> OutputDirectory::swap_in() {
  const unsigned flags = mode_ == Mode::kReplace ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    return fail_here(path_, "cannot move the directory into place", errno);
  }
  if (mode_ == Mode::kNew) staging_.clear();
  return {};
}

}  // namespace ballast
