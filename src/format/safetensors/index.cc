#include "format/safetensors/index.h"

#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast::safetensors {
namespace {

Result<void> check_shard_name(std::string_view shard, std::string_view tensor) {
  const std::filesystem::path path(shard);
  const bool escapes = path.is_absolute() || shard.find('\\') != std::string_view::npos ||
                       std::ranges::find(path, std::filesystem::path("..")) != path.end();
  if (escapes || shard.find('\0') != std::string_view::npos) {
    return fail(Errc::kCorrupt, "shard {} of tensor {} is outside the model directory", quote(shard), quote(tensor));
  }
  if (!shard.ends_with(kSafetensorsSuffix)) {
    return fail(Errc::kUnsupported, "shard {} of tensor {} is not a .safetensors file", quote(shard), quote(tensor));
  }
  return {};
}

}  // namespace

Result<ShardIndex> parse_index(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, text));
  simdjson::dom::object map;
  if (!root.is_object() || root.at_key("weight_map").get(map) != simdjson::SUCCESS) {
    return fail(Errc::kCorrupt, "'weight_map' is missing or not an object");
  }

  ShardIndex index;
  std::unordered_set<std::string_view> seen;
  std::unordered_map<std::string_view, std::string> shards;  // normalized names
  for (const auto [tensor, value] : map) {
    std::string_view shard;
    if (value.get(shard) != simdjson::SUCCESS) {
      return fail(Errc::kCorrupt, "the shard of tensor {} is not a string", quote(tensor));
    }
    if (!seen.insert(tensor).second) return fail(Errc::kCorrupt, "duplicate tensor {}", quote(tensor));
    auto& normal = shards[shard];
    if (normal.empty()) {
      TRY(check_shard_name(shard, tensor));
      normal = std::filesystem::path(shard).lexically_normal().string();  // ./a becomes a
    }
    index.entries.push_back({.tensor = std::string(tensor), .shard = normal});
  }
  if (index.entries.empty()) return fail(Errc::kCorrupt, "'weight_map' is empty");

  std::uint64_t total = 0;
  if (root.at_pointer("/metadata/total_size").get(total) == simdjson::SUCCESS) index.total_size = total;
  std::uint64_t parameters = 0;
  const bool is_ours = root.at_pointer("/metadata/ballast_key").error() == simdjson::SUCCESS;
  if (is_ours && root.at_pointer("/metadata/total_parameters").get(parameters) == simdjson::SUCCESS) {
    index.parameters = parameters;
  }
  return index;
}

}  // namespace ballast::safetensors
