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

struct ShardName {
  std::string_view stem;
  std::uint32_t count;
};

// model-00001-of-00003.safetensors
std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  if (!name.ends_with(kWeightsSuffix)) return std::nullopt;
  name.remove_suffix(kWeightsSuffix.size());
  if (name.size() <= kTail) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto number = [](std::string_view digits) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  const auto first = number(tail.substr(1, kDigits));
  const auto last = number(tail.substr(1 + kDigits + kOf.size()));
  if (!first || !last || *first == 0 || *first > *last) return std::nullopt;
  return ShardName{.stem = name.substr(0, name.size() - kTail), .count = *last};
}

Result<std::set<std::string>> list_names(const fs::path& directory) {
  std::error_code error;
  std::set<std::string> names;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) return fail(Errc::kIo, "cannot list the directory: {}", error.message());
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

// The shards of one set, `stem-0000i-of-0000n.safetensors`, all of which must be there.
Result<std::vector<std::string>> find_shards(const std::set<std::string>& names) {
  std::vector<std::string> found;
  std::optional<ShardName> set;
  for (const std::string& file : names) {
    const auto shard = parse_shard_name(file);
    if (!shard) continue;
    if (set && (set->stem != shard->stem || set->count != shard->count)) {
      return fail(Errc::kCorrupt, "two sets of shards and no index: {} and {}", quote(found.front()), quote(file));
    }
    set = shard;
    found.push_back(file);
  }
  for (std::uint32_t i = 0; set && i < set->count; ++i) {
    const std::string expected = fmt::format("{}-{:05}-of-{:05}{}", set->stem, i + 1, set->count, kWeightsSuffix);
    if (!names.contains(expected)) {
      return fail(Errc::kCorrupt, "shard {} is missing: {} of {} are there", quote(expected), found.size(), set->count);
    }
  }
  return found;
}

Result<std::string> choose_index(const std::set<std::string>& names) {
  constexpr std::string_view kUsual = "model.safetensors.index.json";
  if (names.contains(std::string(kUsual))) return std::string(kUsual);
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found), [](const std::string& name) { return name.ends_with(kIndexSuffix); });
  if (found.empty()) return std::string();
  if (found.size() == 1) return found.front();
  return fail(Errc::kInvalidArgument, "several indexes, {} and {} among them: name the one to open", quote(found[0]),
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
  for (const char* single : {"model.safetensors", "weights.safetensors"}) {
    if (!names.contains(single)) continue;
    if (location->files.empty()) {
      location->files = {below(single)};
      winner = single;
    } else if (std::ranges::find(location->files, below(single)) == location->files.end()) {
      location->warnings.push_back(fmt::format("{} is ignored: {} wins", single, winner));
    }
  }
  if (!location->files.empty()) return location;
  if (names.contains("weights.mlx")) {
    return error_here({.code = Errc::kUnsupported, .message = "weights.mlx is MLX JSON, which cannot be read yet"});
  }
  for (const std::string& file : other_weights(names)) location->files.push_back(below(file));
  if (!location->files.empty()) return location;
  return error_here({.code = Errc::kNotFound,
                     .message = "no weights: none of model.safetensors.index.json, model.safetensors, weights.safetensors, "
                                "weights.mlx is there"});
}

}  // namespace

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
  if (!is_directory && !path.ends_with(".index.json")) return Location{.files = {path}};

  auto location = [&]() -> Result<Location> {
    if (!is_directory) return locate_index(given);
    const auto names = list_names(given);
    if (!names) return fail_at(escape(path), names.error());
    return locate_in(given, *names);
  }();
  if (!location) return location;
  const fs::path config = (is_directory ? given : given.parent_path()) / "config.json";
  if (fs::exists(config, error)) location->config_path = config.string();
  return location;
}

}  // namespace ballast
