#include "output/occupied.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "output/directory.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// The files below `folder`, without hidden ones.
std::vector<std::string> files_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::recursive_directory_iterator entry(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (!entry->is_directory(ignored) || entry->is_symlink(ignored)) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  std::ranges::sort(names);
  return names;
}

bool is_adapter_name(std::string_view name) { return std::ranges::find(kAdapterStems, stem_of(name)) != kAdapterStems.end(); }

std::unexpected<Error> fail_occupied(const std::string& path, const std::string& first, std::size_t count) {
  return fail(Errc::kWrite,
              "{}: the directory is not empty: {}{} would stay beside the model; choose another directory, or allow it (force)",
              escape(path), quote(first), count > 1 ? fmt::format(" and {} more files", count - 1) : "");
}

}  // namespace

Result<void> check_free(const std::string& path, std::span<const std::string> names, bool resume) {
  std::error_code error;
  if (!fs::is_directory(path, error) || (resume && has_incomplete(path))) return {};
  const std::vector<std::string> found = files_in(path);
  const bool was_parquet = std::ranges::any_of(found, is_parquet_part);
  const std::set<std::string_view> written(names.begin(), names.end());
  // Adapters are not models, so only another adapter replaces one.
  const auto is_kept = [&](const std::string& name) {
    return is_adapter_name(name) && std::ranges::none_of(written, is_adapter_name);
  };
  const auto is_weights = [](const std::string& name) { return is_model_name(name) || name.ends_with(kSafetensorsSuffix); };
  const auto is_replaced = [&](const std::string& name) {
    const bool is_old = is_model_name(name) || (was_parquet && name == kParquetMetadataFile);
    return written.contains(name) || (is_old && !is_kept(name));
  };
  const auto stays = std::ranges::find_if_not(found, is_replaced);
  const bool has_model = std::ranges::any_of(found, is_weights);
  if (found.empty() || (stays == found.end() && (has_model || resume))) return {};
  const std::string& first = stays == found.end() ? found.front() : *stays;
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(found, [&](const std::string& name) { return !has_model || !is_replaced(name); }));
  return fail_occupied(path, first, count);
}

Result<void> check_only(const std::string& path, std::span<const std::string> names) {
  std::vector<std::string> others = files_in(path);
  const std::set<std::string_view> written(names.begin(), names.end());
  std::erase_if(others, [&](const std::string& name) { return written.contains(name); });
  if (others.empty()) return {};
  return fail_occupied(path, others.front(), others.size());
}

}  // namespace ballast
