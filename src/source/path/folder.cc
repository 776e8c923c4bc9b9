#include "source/path/folder.h"

#include <algorithm>

#include "base/fail.h"
#include "base/try.h"
#include "source/uri.h"

namespace ballast {

Result<Folder> Folder::list(std::string path, const ReadOptions& options) {
  Folder folder(std::move(path), options);
  folder.listed_ = TRY(folder.files());
  return folder;
}

Result<std::vector<ListedFile>> Folder::files() const {
  if (listed_) return *listed_;
  auto files = list_folder(path_, options_);
  return files ? std::move(files) : fail_at(shown(path_), files.error());
}

Result<std::vector<ListedFile>> Folder::tree() const {
  if (is_http(path_)) return files();
  auto files = list_tree(path_, options_);
  return files ? std::move(files) : fail_at(shown(path_), files.error());
}

Result<bool> Folder::has(std::string_view name) const {
  if (listed_) return std::ranges::binary_search(*listed_, name, {}, &ListedFile::name);
  const std::string path = join_path(path_, name);
  const auto found = exists(path, options_);
  return found ? found : fail_at(shown(path), found.error());
}

Result<std::optional<std::string>> Folder::read_text(std::string_view name) const {
  const bool reads_directly = !listed_ && is_uri(path_);  // one request shows both whether the file exists and its content
  if (!reads_directly && !TRY(has(name))) return std::nullopt;
  const std::string path = join_path(path_, name);
  auto text = ballast::read_text(path, options_);
  if (text) return std::move(*text);
  if (reads_directly && is_absent(text.error())) return std::nullopt;
  return fail_at(shown(path), text.error());
}

}  // namespace ballast
