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
  std::string shard;  // a relative path inside the folder of the index
};

// The content of model.safetensors.index.json: the shard of each tensor.
struct ShardIndex {
  std::vector<IndexEntry> entries;  // in the order of the file
  std::optional<std::uint64_t> total_size;
  std::optional<std::uint64_t> parameters;  // number of original parameters; only in an index that `quantize` has written
};

Result<ShardIndex> parse_index(std::string_view text);

}  // namespace ballast::safetensors
