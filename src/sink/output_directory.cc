#include "sink/output_directory.h"

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

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::unexpected<Error> fail_here(const std::string& path, std::string_view what, int error) {
  return fail(Errc::kWrite, "{}: {}: {}", escape(path), what, std::generic_category().message(error));
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

bool is_directory(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored) && !entry.is_symlink(ignored);
}

}  // namespace

bool is_weights_name(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || name.ends_with(".mlx");
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)), mode_(other.mode_), staging_(std::exchange(other.staging_, {})) {}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

Result<OutputDirectory> OutputDirectory::create(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::exists(path, error) ? fs::canonical(path, error) : fs::absolute(path, error).lexically_normal();
  std::string place = whole.has_filename() ? whole.string() : whole.parent_path().string();
  if (error || place.empty()) return fail(Errc::kWrite, "'{}': cannot write: not the name of a directory", escape(path));

  if (!fs::exists(place, error)) {
    if (::access(folder_of(place).c_str(), W_OK) != 0) return fail_here(path, "cannot write", errno);
    return OutputDirectory(std::move(place), Mode::kNew);
  }
  if (!fs::is_directory(place, error)) {
    return fail(Errc::kWrite,
                "{}: cannot write: it is there and is not a directory; one file's name ends in .safetensors or .mlx",
                escape(path));
  }
  const auto entries = list(place);
  if (!entries) return std::unexpected(entries.error());
  const bool has_weights = std::ranges::any_of(
      *entries, [](const fs::directory_entry& entry) { return is_weights_name(entry.path().filename().string()); });
  if (!has_weights) return OutputDirectory(std::move(place), Mode::kFill);
  if (!same_device(place, folder_of(place))) {
    return fail(Errc::kWrite, "{}: cannot replace the weights in it, as it is a mount point: empty it, or name a folder below",
                escape(path));
  }
  return OutputDirectory(std::move(place), Mode::kReplace);
}

Result<OutputFile> OutputDirectory::add(std::string_view name) const {
  return OutputFile::create(fmt::format("{}/{}", path_, name), mode_ == Mode::kFill ? path_ : folder_of(path_));
}

Result<void> OutputDirectory::commit(std::vector<OutputFile>& files, bool sync) {
  for (OutputFile& file : files) {
    if (!sync) break;
    if (auto synced = file.sync(); !synced) return synced;
  }
  if (mode_ == Mode::kFill) return fill(files, sync);
  if (auto staged = stage(files, sync); !staged) return staged;
  if (auto swapped = swap_in(); !swapped) return swapped;
  return sync ? sync_folder(folder_of(path_)) : Result<void>();
}

Result<void> OutputDirectory::fill(std::vector<OutputFile>& files, bool sync) const {
  for (OutputFile& file : files) {
    if (auto published = file.publish(); !published) return published;
  }
  return sync ? sync_folder(path_) : Result<void>();
}

Result<void> OutputDirectory::stage(std::vector<OutputFile>& files, bool sync) {
  std::string staging = hidden_name(folder_of(path_));
  if (::mkdir(staging.c_str(), 0777) != 0) return fail_here(path_, "cannot make the directory", errno);
  staging_ = std::move(staging);
  if (mode_ == Mode::kReplace) {
    struct stat replaced{};
    if (::stat(path_.c_str(), &replaced) == 0) ::chmod(staging_.c_str(), replaced.st_mode & 07777U);
    if (auto carried = carry_over(files); !carried) return carried;
  }
  for (OutputFile& file : files) {
    if (auto published = file.publish_new(staging_ + "/" + file_name(file.path())); !published) return published;
  }
  return sync ? sync_folder(staging_) : Result<void>();
}

// Gives the files that stay a second name in the new directory.
Result<void> OutputDirectory::carry_over(const std::vector<OutputFile>& files) const {
  const auto entries = list(path_);
  if (!entries) return std::unexpected(entries.error());
  for (const fs::directory_entry& entry : *entries) {
    const std::string name = entry.path().filename().string();
    const bool is_new = std::ranges::any_of(files, [&](const OutputFile& file) { return file_name(file.path()) == name; });
    if (is_new || is_weights_name(name) || is_directory(entry)) continue;
    if (::link(entry.path().c_str(), (staging_ + "/" + name).c_str()) != 0) {
      return fail_here(entry.path().string(), "cannot keep the file", errno);
    }
  }
  return {};
}

Result<void> OutputDirectory::swap_in() {
  if (mode_ == Mode::kNew) {
    if (::rename(staging_.c_str(), path_.c_str()) != 0) return fail_here(path_, "cannot give the directory its name", errno);
    staging_.clear();
    return {};
  }
  if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    return fail_here(path_, "cannot replace the directory, name a new one", errno);
  }
  // Folders have one name only, so they move now. `staging_` holds the old directory, which goes when this object does.
  const auto entries = list(staging_);
  for (const fs::directory_entry& entry : entries ? *entries : std::vector<fs::directory_entry>()) {
    if (!is_directory(entry)) continue;
    const std::string kept = path_ + "/" + entry.path().filename().string();
    if (::rename(entry.path().c_str(), kept.c_str()) != 0) {
      const std::string left = std::exchange(staging_, {});
      return fail_here(kept, fmt::format("cannot keep the folder, it is now in {}", escape(left)), errno);
    }
  }
  return {};
}

}  // namespace ballast
