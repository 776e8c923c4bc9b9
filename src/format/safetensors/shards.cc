#include "format/safetensors/shards.h"

#include <algorithm>
#include <map>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/try.h"
#include "format/safetensors/layout.h"

namespace ballast::safetensors {

Result<std::vector<std::vector<std::size_t>>> plan_shards(std::span<const TensorSpec> tensors, const Metadata& metadata,
                                                          std::uint64_t max_bytes) {
  std::vector<std::vector<std::size_t>> shards(1);
  const std::uint64_t empty = safetensors::header_bound(metadata);
  std::uint64_t filled = empty;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = TRY(safetensors::data_bytes(tensors[i]));
    const std::uint64_t entry = safetensors::entry_bound(tensors[i]);
    const bool fits = filled <= max_bytes && entry <= max_bytes - filled && bytes <= max_bytes - filled - entry;
    if (max_bytes != 0 && !fits && !shards.back().empty()) {
      shards.emplace_back();
      filled = empty;
    }
    shards.back().push_back(i);
    filled = std::min(filled + entry, UINT64_MAX - bytes) + bytes;
  }
  return shards;
}

std::string shard_name(std::string_view stem, std::size_t shard, std::size_t count) {
  if (count == 1) return fmt::format("{}{}", stem, kSafetensorsSuffix);
  return fmt::format("{}-{:05}-of-{:05}{}", stem, shard + 1, count, kSafetensorsSuffix);
}

std::string index_text(std::string_view stem, std::span<const TensorSpec> tensors,
                       std::span<const std::vector<std::size_t>> shards, std::uint64_t total_size, std::string_view metadata) {
  std::map<std::string_view, std::size_t> shard_of;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    for (const std::size_t tensor : shards[shard]) shard_of.emplace(tensors[tensor].name, shard);
  }
  std::string text = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}{}{}\n  }},\n  \"weight_map\": {{", total_size,
                                 metadata.empty() ? "" : ",\n    ", metadata);
  bool first = true;
  for (const auto& [tensor, shard] : shard_of) {
    text += first ? "\n    " : ",\n    ";
    first = false;
    append_json_string(tensor, text);
    text += ": ";
    append_json_string(shard_name(stem, shard, shards.size()), text);
  }
  return text += "\n  }\n}\n";
}

}  // namespace ballast::safetensors
