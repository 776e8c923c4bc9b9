#include "source/path/hub_folder.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBlobs = "blobs";
constexpr const char* kSnapshots = "snapshots";
constexpr std::string_view kRepository = "models--";

bool is_folder_at(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_repository(const fs::path& folder) {
  return is_folder_at(folder / kSnapshots) && (is_folder_at(folder / kBlobs) || is_folder_at(folder / "refs"));
}

// The names of the folders in `folder` that begin with `prefix`, sorted.
std::vector<std::string> folders_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && is_folder_at(entry->path())) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

// The commit of the branch main, without the newline that some programs write.
std::string main_commit(const fs::path& repository) {
  std::string commit = read_text_file((repository / "refs" / "main").string()).value_or("");
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
  return commit;
}

std::string describe_repository(const fs::path& folder) {
  const std::vector<std::string> snapshots = folders_in(folder / kSnapshots, "");
  const std::string commit = main_commit(folder);
  const bool has_main = std::ranges::find(snapshots, commit) != snapshots.end();
  const auto path_of = [&](const std::string& name) { return shown((folder / kSnapshots / name).string()); };
  if (snapshots.empty()) {
    return "this folder of the Hugging Face cache has no snapshot: the model is not downloaded; download it again";
  }
  if (has_main || snapshots.size() == 1) {
    return fmt::format("this is a folder of the Hugging Face cache; give the path of the model in it, {}",
                       path_of(has_main ? commit : snapshots.front()));
  }
  return fmt::format("this is a folder of the Hugging Face cache with {} snapshots; give the path of one, such as {}",
                     snapshots.size(), path_of(snapshots.front()));
}

// The closest folder above `path` that is a repository of the cache; empty if there is none.
fs::path repository_above(fs::path path) {
  while (path.has_relative_path()) {
    fs::path parent = path.parent_path();
    const auto name = path.filename();
    if ((name == kBlobs || name == kSnapshots) && is_repository(parent)) return parent;
    path = std::move(parent);
  }
  return {};
}

}  // namespace

std::optional<std::string> describe_hub_folder(const std::string& folder) {
  if (is_uri(folder)) return std::nullopt;
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) return std::nullopt;
  if (is_repository(path)) return describe_repository(fs::path(folder));
  if (path.filename() == kSnapshots && is_repository(path.parent_path())) return describe_repository(path.parent_path());
  const std::vector<std::string> models = folders_in(path, kRepository);
  if (models.empty()) return std::nullopt;
  return fmt::format("this is a Hugging Face cache of {} models; give the path of one, such as {}", models.size(),
                     shown(join_path(folder, models.front())));
}

bool is_hub_cached(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::absolute(path, error).lexically_normal();
  if (error) return false;
  if (!repository_above(place).empty()) return true;
  const fs::path real = fs::weakly_canonical(path, error);
  return !error && !repository_above(real).empty();
}

}  // namespace ballast
