#include "jobs/pipeline/other_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "source/path/folder.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// A file that the output may replace: it has the name of one in the source, or is a weights file.
bool is_expected(const std::string& name, const std::set<std::string>& source) {
  return source.contains(name) || is_model_name(name) || name == kParquetMetadataFile || name == kConfigFile;
}

}  // namespace

Result<std::set<std::string>> list_names(const std::string& folder, const OpenOptions& options) {
  std::set<std::string> names;
  for (const ListedFile& file : TRY(Folder(folder, read_options(options)).files())) names.insert(file.name);
  return names;
}

Result<std::vector<std::string>> find_others(const PipelineInput& input, const std::string& out,
                                             std::span<const std::string> names) {
  std::error_code error;
  std::vector<std::string> others;
  if (!fs::is_directory(out, error)) return others;
  for (const std::string& name : TRY(list_names(out, {}))) {
    if (std::ranges::find(names, name) == names.end()) others.push_back(name);
  }
  for (std::size_t i = 0; i < input.components.size(); ++i) {
    const Component& component = input.components[i];
    const std::string folder = fmt::format("{}/{}", out, component.name);
    if (!fs::is_directory(folder, error)) continue;
    const auto source = TRY(list_names(component.path, input.open[i]));
    for (const std::string& name : TRY(list_names(folder, {}))) {
      if (!is_expected(name, source)) others.push_back(fmt::format("{}/{}", component.name, name));
    }
  }
  return others;
}

Result<void> keep(const std::string& from, const std::string& to) {
  constexpr auto kAll = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error))) return {};
  fs::copy(from, to, kAll | fs::copy_options::create_hard_links, error);
  if (!error) return {};
  fs::remove_all(to, error);
  fs::copy(from, to, kAll, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot copy it from {}", escape(to), escape(from));
  return {};
}

}  // namespace ballast
