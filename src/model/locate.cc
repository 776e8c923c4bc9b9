#include "model/locate.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/magic.h"
#include "model/pipeline.h"
#include "model/variants.h"
#include "source/path/hub_folder.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr const char* kNoWeights =
    "no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or weights.mlx";

bool is_variant_index(std::string_view name) {
  const auto variant = parse_variant_name(name);
  return variant && variant->kind == VariantName::Kind::kIndex;
}

bool is_index_name(std::string_view name) { return name.ends_with(".index.json") || is_variant_index(name); }

std::string ignored(const std::string& path, std::string_view used) {
  return fmt::format("{} is ignored because {} is used", shown(path), used);
}

Result<std::set<std::string>> list_names(const Folder& folder) {
  std::set<std::string> names;
  for (const ListedFile& file : TRY(folder.files())) names.insert(file.name);
  return names;
}

Result<Location> locate_index(const std::string& index_path, const ReadOptions& options) {
  const auto text = read_text(index_path, options);
  if (!text) return fail_at(shown(index_path), text.error());
  auto index = safetensors::parse_index(*text);
  if (!index) return fail_at(shown(index_path), index.error());

  Location location{.index_path = index_path};
  const std::string folder = parent_path(index_path);
  std::set<std::string> shards;
  for (const auto& entry : index->entries) shards.insert(join_path(folder, entry.shard));
  location.files.assign(shards.begin(), shards.end());
  location.index = std::move(*index);
  return location;
}

// Finds the shards of one set, which must be complete. Most sets are numbered from 1, some from 0.
Result<std::vector<std::string>> find_shards(const std::set<std::string>& names) {
  std::vector<std::string> found;
  std::optional<ShardName> set;
  std::uint32_t first = 1;
  const bool has_model =
      std::ranges::any_of(names, [](const std::string& file) { return parse_shard_name(file) && stem_of(file) == kModelStem; });
  for (const std::string& file : names) {
    const auto shard = parse_shard_name(file);
    if (!shard || (has_model && stem_of(file) == kConsolidatedStem)) continue;
    if (set && (set->before != shard->before || set->after != shard->after)) {
      return fail(Errc::kCorrupt, "two sets of shards without an index: {} and {}; move one set to another directory",
                  quote(found.front()), quote(file));
    }
    set = shard;
    first = std::min(first, shard->number);
    found.push_back(file);
  }
  for (std::uint32_t i = 0; set && i < set->count; ++i) {
    const std::string expected = fmt::format("{}{:0{}}{}{}", set->before, first + i, set->digits, set->after, kSafetensorsSuffix);
    if (!names.contains(expected)) {
      return fail(Errc::kCorrupt, "shard {} is missing ({} of {} found); download it", quote(expected), found.size(), set->count);
    }
  }
  return found;
}

Result<std::string> choose_index(const std::set<std::string>& names) {
  if (names.contains(std::string(kIndexFile))) return std::string(kIndexFile);
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found),
                       [](const std::string& name) { return name.ends_with(kIndexSuffix) || is_variant_index(name); });
  if (found.empty()) return std::string();
  if (found.size() == 1) return found.front();
  return fail(Errc::kUnsupported, "several indexes, including {} and {}; give the path of the one to open", quote(found[0]),
              quote(found[1]));
}

// SafeTensors files that may be a model of their own.
std::vector<std::string> other_weights(const std::set<std::string>& names) {
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found), [](const std::string& name) {
    return name.ends_with(kSafetensorsSuffix) && file_role(name) != FileRole::kSideWeights;
  });
  return found;
}

// Several files without an index are one model only if their names say so.
Result<void> check_related(std::span<const std::string> files) {
  if (files.size() < 2) return {};
  std::uint32_t expected = 0;
  for (const std::string& file : files) {
    const auto number = parse_consolidated_name(file);
    if (!number) {
      constexpr std::size_t kFew = 5;
      std::string list;
      for (const std::string& each : files.first(std::min(files.size(), kFew))) list += (list.empty() ? "" : ", ") + quote(each);
      return fail(Errc::kUnsupported, "{} weight files without an index, which may be different models: {}{}; name one of them",
                  files.size(), list, files.size() > kFew ? ", ..." : "");
    }
    if (*number != expected++) {
      return fail(Errc::kCorrupt, "shard {} of consolidated.*.safetensors is missing before {}; download it", expected - 1,
                  quote(file));
    }
  }
  return {};
}

// Weight files that are not read, of which the names in kSingleFiles have a warning each.
void warn_about_rest(const std::string& directory, const std::set<std::string>& names, std::string_view used,
                     Location& location) {
  std::vector<std::string> rest = other_weights(names);
  std::erase_if(rest, [&](const std::string& name) {
    return std::ranges::find(kSingleFiles, name) != kSingleFiles.end() ||
           std::ranges::find(location.files, join_path(directory, name)) != location.files.end();
  });
  if (rest.empty()) return;
  const std::string more = rest.size() == 1 ? "is" : fmt::format("and {} more are", rest.size() - 1);
  location.warnings.push_back(
      fmt::format("{} {} ignored because {} is used", shown(join_path(directory, rest.front())), more, used));
}

// The error for a directory without weights that can be read.
Error describe_missing(const std::string& directory, const std::set<std::string>& names) {
  if (auto cache = describe_hub_folder(directory)) return {.code = Errc::kNotFound, .message = std::move(*cache)};
  for (const std::string& name : names) {
    if (name.ends_with(kParquetSuffix)) {
      return {.code = Errc::kUnsupported, .message = "contains quantized weights in Parquet; dequantize them first"};
    }
  }
  for (const std::string& name : names) {
    const std::string guess = safetensors::guess_by_name(join_path(directory, name));
    if (guess.empty() || !is_weights_name(name)) continue;
    return {.code = Errc::kNotFound, .message = fmt::format("no SafeTensors weights, but {}{}", quote(name), guess)};
  }
  return {.code = Errc::kNotFound, .message = kNoWeights};
}

Result<Location> locate_in(const std::string& directory, const std::set<std::string>& names, const ReadOptions& options) {
  const auto below = [&](std::string_view name) { return join_path(directory, name); };
  const auto error_here = [&](const Error& error) { return fail_at(shown(directory), error); };
  const auto index = choose_index(names);
  if (!index) return error_here(index.error());
  auto shards = index->empty() ? find_shards(names) : Result<std::vector<std::string>>();
  if (!shards) return error_here(shards.error());

  Result<Location> location = index->empty() ? Location{} : locate_index(below(*index), options);
  if (!location) return location;
  if (index->empty()) {
    for (const std::string& shard : *shards) location->files.push_back(below(shard));
  }
  std::string used = index->empty() ? "the set of shards" : escape(*index);
  for (const std::string_view single : kSingleFiles) {
    if (!names.contains(std::string(single))) continue;
    if (location->files.empty()) {
      location->files = {below(single)};
      used = single;
    } else if (std::ranges::find(location->files, below(single)) == location->files.end()) {
      location->warnings.push_back(ignored(below(single), used));
    }
  }
  if (!location->files.empty()) {
    warn_about_rest(directory, names, used, *location);
    return location;
  }
  const std::vector<std::string> others = other_weights(names);
  if (others.empty()) return error_here(describe_missing(directory, names));
  if (auto related = check_related(others); !related) return error_here(related.error());
  for (const std::string& file : others) location->files.push_back(below(file));
  return location;
}

// A file alone, which may be one of several shards.
Location locate_file(std::string path) {
  const std::string name = file_name(path);
  const auto shard = parse_shard_name(name);
  Location location{.files = {std::move(path)}};
  if (shard && shard->count > 1) {
    location.warnings.push_back(fmt::format("{} is one of {} shards; the others are not read", escape(name), shard->count));
  }
  return location;
}

Result<void> refuse_pipeline(const Place& place, const std::set<std::string>& names) {
  if (!names.contains(std::string(kPipelineFile))) return {};
  const auto entries = TRY(read_pipeline(*place.folder));
  return entries.empty() ? Result<void>() : fail_pipeline(place.path, entries);
}

// The weights of one variant.
Result<Location> locate_folder(const Place& place, const ReadOptions& options) {
  auto names = TRY(list_names(*place.folder));
  TRY(refuse_pipeline(place, names));
  auto chosen = choose_variant(std::move(names), place.variant);
  if (!chosen) return fail_at(shown(place.path), chosen.error());
  auto location = locate_in(place.path, chosen->names, options);
  if (location) location->warnings.insert(location->warnings.begin(), chosen->warnings.begin(), chosen->warnings.end());
  return location;
}

}  // namespace

Result<Place> find_place(const std::string& given, const OpenOptions& options) {
  const ReadOptions read = read_options(options);
  auto path = pin_path(given, read);
  if (!path) return fail_at(shown(given), path.error());
  if (!options.component.empty()) path = component_folder(*path, options.component, read);
  if (!path) return std::unexpected(path.error());
  Place place{.path = std::move(*path), .folder = {}, .variant = options.variant};
  if (is_folder(place.path)) place.folder = TRY(Folder::list(place.path, read));
  return place;
}

Result<Location> locate(Place place, const ReadOptions& options) {
  if (!place.folder && !place.variant.empty()) {
    return fail(Errc::kInvalidArgument, "{}: variant is {}, but this is a file; give its directory", shown(place.path),
                quote(place.variant));
  }
  if (!place.folder && !is_index_name(file_name(place.path))) return locate_file(std::move(place.path));
  Location location = TRY(place.folder ? locate_folder(place, options) : locate_index(place.path, options));
  location.folder = place.folder ? std::move(*place.folder) : Folder(parent_path(place.path), options);
  return location;
}

Result<Location> locate(const std::string& given, const OpenOptions& options) {
  return locate(TRY(find_place(given, options)), read_options(options));
}

Result<Location> locate_pretrained(const std::string& given, const OpenOptions& options) {
  const auto error_here = [&](Errc code, std::string message) {
    return fail_at(shown(given), Error{.code = code, .message = std::move(message)});
  };
  Place place = TRY(find_place(given, options));
  if (!place.folder) return error_here(Errc::kNotFound, "not a directory");
  const auto names = TRY(list_names(*place.folder));
  TRY(refuse_pipeline(place, names));
  if (!names.contains(std::string(kConfigFile))) return error_here(Errc::kNotFound, "no config.json");
  if (!place.variant.empty()) return locate(std::move(place), read_options(options));

  Location location;
  std::string_view used;
  for (const std::string_view name : {kIndexFile, kSingleFiles[0], kSingleFiles[1], kSingleFiles[2]}) {
    if (!names.contains(std::string(name))) continue;
    if (!used.empty()) {
      const bool is_of_index = std::ranges::find(location.files, join_path(place.path, name)) != location.files.end();
      if (!is_of_index) location.warnings.push_back(ignored(join_path(place.path, name), used));
      continue;
    }
    used = name;
    if (used == kIndexFile) {
      auto found = TRY(locate_index(join_path(place.path, name), read_options(options)));
      location = std::move(found);
    } else {
      location.files = {join_path(place.path, name)};
    }
  }
  if (used.empty()) return error_here(Errc::kNotFound, kNoWeights);
  location.folder = std::move(place.folder);
  return location;
}

}  // namespace ballast
