#include "sink/output.h"

#include "base/fail.h"
#include "base/text.h"

namespace ballast {

Result<Output> Output::directory(const std::string& path) {
  auto directory = OutputDirectory::create(path);
  if (!directory) return std::unexpected(directory.error());
  return Output(path, std::move(*directory));
}

Result<std::size_t> Output::add(std::string_view name) {
  auto file = directory_ ? directory_->add(name) : OutputFile::create(path_);
  if (!file) return std::unexpected(file.error());
  files_.push_back(std::move(*file));
  return files_.size() - 1;
}

Result<void> Output::add(const Companion& companion) {
  const auto added = add(companion.name);
  if (!added) return std::unexpected(added.error());
  OutputFile& file = files_[*added];
  if (companion.path.empty()) return file.write_at(0, as_bytes(companion.text));
  const auto source = open_file(companion.path, Access::kPread);
  if (!source) return fail_at(escape(companion.path), source.error());
  return file.copy_from(**source, 0, 0, (*source)->size());
}

Result<void> Output::commit(bool sync) {
  if (directory_) return directory_->commit(files_, sync);
  OutputFile& file = files_.front();
  if (sync) {
    if (auto synced = file.sync(); !synced) return synced;
  }
  if (auto published = file.publish(); !published) return published;
  return sync ? sync_folder(folder_of(file.path())) : Result<void>();
}

}  // namespace ballast
