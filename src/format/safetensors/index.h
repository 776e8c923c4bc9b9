#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast::safetensors {

struct IndexEntry {
  std::string tensor;
  std::string shard;  // a relative path that stays below the index's folder
};

// What model.safetensors.index.json says: which shard holds which tensor.
struct ShardIndex {
  std::vector<IndexEntry> entries;  // in the order of the file
  std::optional<std::uint64_t> total_size;
  std::optional<std::uint64_t> parameters;  // logical ones, in an index that quantize has written
};

Result<ShardIndex> parse_index(std::string_view text);

}  // namespace ballast::safetensors
