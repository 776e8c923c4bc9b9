#include "jobs/download/list.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <ballast/glob.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/index.h"
#include "model/pipeline.h"
#include "scheme/parquet/metadata.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

bool is_wanted(const std::string& name, const DownloadOptions& options) {
  const auto matches = [&](const std::string& glob) { return glob_match(glob, name); };
  return (options.include.empty() || std::ranges::any_of(options.include, matches)) &&
         std::ranges::none_of(options.exclude, matches);
}

// HTTP has no file lists, but a model's index and Parquet metadata name the other files.
Result<void> add_told(const std::string& uri, const DownloadOptions& options, std::vector<ListedFile>& files) {
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(files, name, &ListedFile::name) == files.end()) files.push_back({.name = name});
  };
  std::vector<std::string> names;
  for (const ListedFile& file : files) names.push_back(file.name);
  for (const std::string& name : names) {
    const bool is_index = name.ends_with(kIndexSuffix);
    if (!is_index && name != kParquetMetadataFile) continue;
    const auto text = read_text(join_path(uri, name), {.stop = options.work.stop});
    if (!text) return fail_at(escape(name), text.error());
    if (is_index) {
      const auto index = safetensors::parse_index(*text);
      if (!index) return fail_at(escape(name), index.error());
      for (const auto& entry : index->entries) add(entry.shard);
    } else if (const auto metadata = parse_parquet_metadata(*text)) {  // other tools use the name as well
      for (const ParquetMetadata::Part& part : metadata->parts) add(part.file);
    }
  }
  return {};
}

// The one file that a URI stands for, by the list of its folder where there is one: it tells sums. Nothing if there is none.
Result<std::optional<ListedFile>> find_file(const std::string& uri, const DownloadOptions& options) {
  const auto beside = TRY(list_folder(parent_path(uri), {.stop = options.work.stop}));
  const auto found = std::ranges::find(beside, file_name(uri), &ListedFile::name);
  return found == beside.end() ? std::nullopt : std::optional(*found);
}

// The components of a pipeline, which HTTP does not list either.
Result<void> add_components(const std::string& uri, const DownloadOptions& options, std::vector<ListedFile>& files) {
  if (std::ranges::find(files, kPipelineFile, &ListedFile::name) == files.end()) return {};
  const ReadOptions read{.stop = options.work.stop};
  for (const PipelineEntry& entry : TRY(read_pipeline(Folder(uri, read)))) {
    const std::string folder = join_path(uri, entry.name);
    auto own = TRY(list_tree(folder, read));
    TRY(add_told(folder, options, own));
    for (ListedFile& file : own) {
      file.name = fmt::format("{}/{}", entry.name, file.name);
      files.push_back(std::move(file));
    }
  }
  return {};
}

Result<std::vector<ListedFile>> list_files(const std::string& uri, const DownloadOptions& options) {
  auto files = list_tree(uri, {.stop = options.work.stop});
  if (files && is_http(uri)) {
    TRY(add_told(uri, options, *files));
    TRY(add_components(uri, options, *files));
  }
  return files;
}

std::string folder_in(const std::string& name) {
  return name.substr(0, name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
}

// Leaves the weights of one variant in each folder, or the plain ones where it has none.
Result<void> leave_variant(const std::string& variant, std::vector<ListedFile>& files) {
  const auto parsed = [](const ListedFile& file) {
    return parse_variant_name(std::string_view(file.name).substr(folder_in(file.name).size()));
  };
  std::set<std::string> folders;
  for (const ListedFile& file : files) {
    const auto weights = parsed(file);
    if (weights && weights->variant == variant) folders.insert(folder_in(file.name));
  }
  if (folders.empty()) return fail(Errc::kNotFound, "no weights of the variant {}", quote(variant));
  std::erase_if(files, [&](const ListedFile& file) {
    const auto weights = parsed(file);
    return weights &&
           weights->variant != (folders.contains(folder_in(file.name)) ? std::string_view(variant) : std::string_view());
  });
  return {};
}

// Applies the options about pipelines.
Result<void> leave_chosen(const std::string& uri, const DownloadOptions& options, std::vector<ListedFile>& files) {
  if (!options.component.empty()) {
    TRY(component_folder(uri, options.component, {.stop = options.work.stop}));
    std::erase_if(files, [&](const ListedFile& file) { return !file.name.starts_with(options.component + "/"); });
  }
  return options.variant.empty() ? Result<void>() : leave_variant(options.variant, files);
}

Result<void> check_name(const std::string& name) {
  const fs::path path(name);
  const bool is_below = !name.empty() && path.is_relative() && std::ranges::find(path, fs::path("..")) == path.end() &&
                        name.find('\0') == std::string::npos;
  if (!is_below) return fail(Errc::kCorrupt, "the server lists an unsafe file name, {}", quote(name));
  if (name.ends_with(kIncompleteSuffix) || name.ends_with(kIncompleteJournalSuffix)) {
    return fail(Errc::kUnsupported, "the server has a file {}, a name reserved for partial downloads; leave it out (exclude)",
                quote(name));
  }
  return {};
}

Wanted only(ListedFile file, const std::string& uri) {
  const std::string name = file.name;
  return {.files = {{.listed = std::move(file), .uri = uri}}, .names = {name}};
}

}  // namespace

Result<Wanted> list_wanted(const std::string& uri, const DownloadOptions& options) {
  const bool has_lists = !is_http(uri);
  auto files = is_folder(uri) ? list_files(uri, options) : Result<std::vector<ListedFile>>();
  if (has_lists && (!files || files->empty()) && !file_name(uri).empty()) {  // a file without an extension
    const auto file = find_file(uri, options);
    if (!file && !files) return std::unexpected(files.error());
    if (file && *file) return only(**file, uri);
    if (!is_folder(uri)) return fail(Errc::kNotFound, "no such file");
  }
  if (!files) return std::unexpected(files.error());
  if (!is_folder(uri)) return only({.name = file_name(uri)}, uri);
  Wanted chosen;
  for (const ListedFile& file : *files) chosen.names.push_back(file.name);
  TRY(leave_chosen(uri, options, *files));
  for (ListedFile& file : *files) {
    if (!is_wanted(file.name, options)) continue;
    TRY(check_name(file.name));
    std::string file_uri = join_path(uri, file.name);
    chosen.files.push_back({.listed = std::move(file), .uri = std::move(file_uri)});
  }
  if (chosen.files.empty()) return fail(Errc::kNotFound, "no files{}", options.include.empty() ? "" : " that match");
  return chosen;
}

}  // namespace ballast
