#include "model/locate.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/fail.h"
#include "base/text.h"
#include "source/source.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kWeightsSuffix = ".safetensors";
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

Result<std::set<std::string>> list_names(const fs::path& directory) {
  std::error_code error;
  std::set<std::string> names;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) return fail_errno(Errc::kIo, error.value(), "cannot list the directory");
  return names;
}

Result<Location> locate_index(const fs::path& index_path) {
  const auto text = read_text(index_path.string());
  if (!text) return fail_at(escape(index_path.string()), text.error());
  auto index = safetensors::parse_index(*text);
  if (!index) return fail_at(escape(index_path.string()), index.error());

  Location location{.index_path = index_path.string()};
  std::set<std::string> shards;
  for (const auto& entry : index->entries) shards.insert((index_path.parent_path() / entry.shard).string());
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

Result<Location> locate_in(const fs::path& directory, const std::set<std::string>& names) {
  const auto below = [&](const std::string& name) { return (directory / name).string(); };
  const auto error_here = [&](const Error& error) { return fail_at(escape(directory.string()), error); };
  const auto index = choose_index(names);
  if (!index) return error_here(index.error());
  auto shards = index->empty() ? find_shards(names) : Result<std::vector<std::string>>();
  if (!shards) return error_here(shards.error());

  Result<Location> location = index->empty() ? Location{} : locate_index(directory / *index);
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

Result<std::string> read_text(const std::string& path) {
  constexpr std::uint64_t kLargest = 100'000'000;
  const auto source = open_file(path, Access::kPread);
  if (!source) return std::unexpected(source.error());
  if ((*source)->size() > kLargest) {
    return fail(Errc::kCorrupt, "file of {} bytes exceeds the limit of {} bytes", (*source)->size(), kLargest);
  }
  std::string text((*source)->size(), '\0');
  if (auto read = (*source)->read_at(0, std::as_writable_bytes(std::span(text))); !read) return std::unexpected(read.error());
  return text;
}

Result<Location> locate(const std::string& path) {
  std::error_code error;
  const fs::path given(path);
  const bool is_directory = fs::is_directory(given, error);
  if (path.find("://") != std::string::npos && !fs::exists(given, error)) {
    return fail(Errc::kUnsupported, "{}: URIs cannot be opened yet, only local files", escape(path));
  }
  if (!is_directory && !path.ends_with(".index.json")) return Location{.files = {path}};

  auto location = [&]() -> Result<Location> {
    if (!is_directory) return locate_index(given);
    const auto names = list_names(given);
    if (!names) return fail_at(escape(path), names.error());
    return locate_in(given, *names);
  }();
  if (!location) return location;
  location->directory = is_directory ? path : given.has_parent_path() ? given.parent_path().string() : ".";
  const fs::path config = fs::path(location->directory) / "config.json";
  if (fs::exists(fs::symlink_status(config, error))) location->config_path = config.string();
  return location;
}

Result<Location> locate_pretrained(const std::string& directory) {
  const fs::path folder(directory);
  const auto error_here = [&](Errc code, std::string message) {
    return fail_at(escape(directory), Error{.code = code, .message = std::move(message)});
  };
  std::error_code error;
  if (!fs::is_directory(folder, error)) return error_here(Errc::kNotFound, "not a directory");
  if (!fs::exists(folder / "config.json", error)) return error_here(Errc::kNotFound, "no config.json");

  Location location;
  std::string_view winner;
  for (const char* const name : {kUsualIndex, "model.safetensors", "weights.safetensors", "weights.mlx"}) {
    if (!fs::exists(folder / name, error)) continue;
    if (!winner.empty()) {
      location.warnings.push_back(ignored(name, winner));
      continue;
    }
    winner = name;
    if (winner == kUsualIndex) {
      auto found = locate_index(folder / name);
      if (!found) return found;
      location = std::move(*found);
    } else {
      location.files = {(folder / name).string()};
    }
  }
  if (winner.empty()) return error_here(Errc::kNotFound, kNoWeights);
  location.directory = directory;
  location.config_path = (folder / "config.json").string();
  return location;
}

}  // namespace ballast
