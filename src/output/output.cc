#include "output/output.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

// Also removes partial files of other runs with other shards.
void remove_incomplete(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (is_weights_name(entry.path().filename().string())) std::filesystem::remove(entry.path(), ignored);
  }
  ::rmdir(folder.c_str());
}

// Whether the path still names the open folder. Another process may have removed it just before it was locked.
bool is_current(const std::string& path, const FileDescriptor& fd) {
  struct stat open{};
  struct stat named{};
  return ::fstat(fd.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

void remove_leftovers(const std::string& directory) {
  const auto output = OutputDirectory::create(directory);
  if (!output) return;
  for (const std::string& folder : {output->incomplete_beside(), output->incomplete_inside()}) {
    std::error_code ignored;  // a journal belongs to other work, which can be resumed
    if (!std::filesystem::exists(folder + "/journal", ignored)) remove_incomplete(folder);
  }
}

Result<Output> Output::directory(const std::string& path) {
  TRY(check_output_path(path));
  auto directory = TRY(OutputDirectory::create(path));
  return Output(path, std::move(directory));
}

Result<std::size_t> Output::add(std::string_view name) {
  auto file = TRY(directory_ ? directory_->add(name) : OutputFile::create(path_));
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

Result<void> Output::keep_incomplete() {
  incomplete_ = directory_ ? directory_->incomplete() : path_ + ".incomplete";
  if (!directory_) return {};
  do {
    if (::mkdir(incomplete_.c_str(), 0777) != 0 && errno != EEXIST) {
      return fail_errno(Errc::kWrite, errno, "{}: cannot create the directory", escape(incomplete_));
    }
    lock_ = lock_directory(incomplete_);
    if (!lock_) return fail(Errc::kWrite, "{}: another process is writing to it; wait for it to finish", escape(incomplete_));
  } while (!is_current(incomplete_, lock_));
  return {};
}

Result<std::size_t> Output::add_partial(std::string_view name) {
  if (!directory_) {
    TRY(check_not_cached(path_));
    TRY(check_replaceable(path_));
  }
  auto file = TRY(directory_ ? OutputFile::create_partial(fmt::format("{}/{}", directory_->path(), name),
                                                          fmt::format("{}/{}", incomplete_, name))
                             : OutputFile::create_partial(path_, incomplete_));
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

std::string Output::journal_path() const { return incomplete_ + (directory_ ? "/journal" : ".journal"); }

Result<void> Output::add(const Companion& companion) {
  const auto added = TRY(add(companion.name));
  OutputFile& file = files_[added];
  if (companion.path.empty()) return file.write_at(0, as_bytes(companion.text));
  const auto source = open_path(companion.path, {.access = Access::kPread});
  if (!source) return fail_at(shown(companion.path), source.error());
  return file.copy_from(**source, 0, 0, (*source)->size());
}

Result<void> Output::commit(bool sync) {
  for (OutputFile& file : files_) {
    if (!sync) break;
    TRY(file.sync());
  }
  // From here on the partial files move to their final names, so the journal is no longer valid.
  if (!incomplete_.empty()) ::unlink(journal_path().c_str());
  if (directory_) {
    auto committed = directory_->commit(files_, sync);
    if (committed && !incomplete_.empty()) remove_incomplete(incomplete_);
    return committed;
  }
  OutputFile& file = files_.front();
  TRY(file.publish());
  return sync ? sync_folder(folder_of(file.path())) : Result<void>();
}

}  // namespace ballast
