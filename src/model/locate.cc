#include "model/locate.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kWeightsSuffix = ".safetensors";
constexpr const char* kConfig = "config.json";
constexpr const char* kUsualIndex = "model.safetensors.index.json";
constexpr const char* kNoWeights =
    "no weights: none of model.safetensors.index.json, model.safetensors, weights.safetensors, weights.mlx is there";

std::string ignored(std::string_view file, std::string_view winner) {
  return fmt::format("{} is ignored: {} wins", file, winner);
}

struct ShardName {
  std::string_view before;  // model-
  std::uint32_t number;
  std::size_t digits;
  std::string_view after;  // -of-00003
  std::uint32_t count;
};

std::optional<std::uint32_t> parse_number(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(kWeightsSuffix)) return std::nullopt;
  name.remove_suffix(kWeightsSuffix.size());
  const std::size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = name.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto number = parse_number(name.substr(dash + 1, of - dash - 1));
  const auto count = parse_number(name.substr(of + kOf.size()));
  if (!number || !count || *count == 0 || *number > *count) return std::nullopt;
  return ShardName{
      .before = name.substr(0, dash + 1), .number = *number, .digits = of - dash - 1, .after = name.substr(of), .count = *count};
}

Result<std::set<std::string>> list_names(const std::string& folder, const ReadOptions& options) {
  const auto files = list_folder(folder, options);
  if (!files) return fail_at(shown(folder), files.error());
  std::set<std::string> names;
  for (const ListedFile& file : *files) names.insert(file.name);
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

// The shards of one set, which must all be there. Most are numbered from 1, some from 0.
Result<std::vector<std::string>> find_shards(const std::set<std::string>& names) {
  std::vector<std::string> found;
  std::optional<ShardName> set;
  std::uint32_t first = 1;
  for (const std::string& file : names) {
    const auto shard = parse_shard_name(file);
    if (!shard) continue;
    if (set && (set->before != shard->before || set->after != shard->after)) {
      return fail(Errc::kCorrupt, "two sets of shards and no index: {} and {}", quote(found.front()), quote(file));
    }
    set = shard;
    first = std::min(first, shard->number);
    found.push_back(file);
  }
  for (std::uint32_t i = 0; set && i < set->count; ++i) {
    const std::string expected = fmt::format("{}{:0{}}{}{}", set->before, first + i, set->digits, set->after, kWeightsSuffix);
    if (!names.contains(expected)) {
      return fail(Errc::kCorrupt, "shard {} is missing: {} of {} are there", quote(expected), found.size(), set->count);
    }
  }
  return found;
}

Result<std::string> choose_index(const std::set<std::string>& names) {
  if (names.contains(kUsualIndex)) return std::string(kUsualIndex);
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found), [](const std::string& name) { return name.ends_with(kIndexSuffix); });
  if (found.empty()) return std::string();
  if (found.size() == 1) return found.front();
  return fail(Errc::kUnsupported, "several indexes, {} and {} among them: name the one to open", quote(found[0]),
              quote(found[1]));
}

std::vector<std::string> other_weights(const std::set<std::string>& names) {
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found), [](const std::string& name) { return name.ends_with(kWeightsSuffix); });
  return found;
}

Result<Location> locate_in(const std::string& directory, const std::set<std::string>& names, const ReadOptions& options) {
  const auto below = [&](const std::string& name) { return join_path(directory, name); };
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
  std::string winner = index->empty() ? "the set of shards" : escape(*index);
  for (const char* single : {"model.safetensors", "weights.safetensors", "weights.mlx"}) {
    if (!names.contains(single)) continue;
    if (location->files.empty()) {
      location->files = {below(single)};
      winner = single;
    } else if (std::ranges::find(location->files, below(single)) == location->files.end()) {
      location->warnings.push_back(ignored(single, winner));
    }
  }
  if (!location->files.empty()) return location;
  for (const std::string& file : other_weights(names)) location->files.push_back(below(file));
  if (!location->files.empty()) return location;
  const bool is_parquet = std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".parquet"); });
  if (is_parquet) {
    return error_here({.code = Errc::kUnsupported, .message = "holds quantized weights in Parquet: dequantize them first"});
  }
  return error_here({.code = Errc::kNotFound, .message = kNoWeights});
}

}  // namespace

bool is_shard_name(std::string_view name) { return parse_shard_name(name).has_value(); }

Result<Location> locate(const std::string& given, const ReadOptions& options) {
  const auto pinned = pin_path(given, options);
  if (!pinned) return fail_at(shown(given), pinned.error());
  const std::string& path = *pinned;
  if (!is_folder(path) && !file_name(path).ends_with(".index.json")) return Location{.files = {path}};
  if (!is_folder(path)) {
    auto location = locate_index(path, options);
    if (!location) return location;
    location->directory = parent_path(path);
    const std::string config = join_path(location->directory, kConfig);
    const auto is_there = exists(config, options);
    if (!is_there) return fail_at(shown(config), is_there.error());
    if (*is_there) location->config_path = config;
    return location;
  }
  const auto names = list_names(path, options);
  if (!names) return std::unexpected(names.error());
  auto location = locate_in(path, *names, options);
  if (!location) return location;
  location->directory = path;
  if (names->contains(kConfig)) location->config_path = join_path(path, kConfig);
  return location;
}

Result<Location> locate_pretrained(const std::string& given, const ReadOptions& options) {
  const auto error_here = [&](Errc code, std::string message) {
    return fail_at(shown(given), Error{.code = code, .message = std::move(message)});
  };
  const auto directory = pin_path(given, options);
  if (!directory) return fail_at(shown(given), directory.error());
  if (!is_folder(*directory)) return error_here(Errc::kNotFound, "not a directory");
  const auto names = list_names(*directory, options);
  if (!names) return std::unexpected(names.error());
  if (!names->contains(kConfig)) return error_here(Errc::kNotFound, "no config.json");

  Location location;
  std::string_view winner;
  for (const char* const name : {kUsualIndex, "model.safetensors", "weights.safetensors", "weights.mlx"}) {
    if (!names->contains(name)) continue;
    if (!winner.empty()) {
      const bool is_of_index = std::ranges::find(location.files, join_path(*directory, name)) != location.files.end();
      if (!is_of_index) location.warnings.push_back(ignored(name, winner));
      continue;
    }
    winner = name;
    if (winner == kUsualIndex) {
      auto found = locate_index(join_path(*directory, name), options);
      if (!found) return found;
      location = std::move(*found);
    } else {
      location.files = {join_path(*directory, name)};
    }
  }
  if (winner.empty()) return error_here(Errc::kNotFound, kNoWeights);
  location.directory = *directory;
  location.config_path = join_path(*directory, kConfig);
  return location;
}

}  // namespace ballast
