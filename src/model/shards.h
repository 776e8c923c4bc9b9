#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

#include "base/bytes.h"
#include "format/safetensors/index.h"
#include "format/tensor_table.h"
#include "source/source.h"

namespace ballast {

// One weight file with a parsed header. Error messages contain the file.
struct Shard {
  std::string path;
  Format format = Format::kSafetensors;
  std::uint64_t file_size = 0;
  std::unique_ptr<Source> source;  // binary tensor data: the file itself, or decoded MLX JSON
  Bytes front;                     // the header's names point into it, unless the header owns them
  TensorTable header;
};

// Opens the files and returns them in the same order; remote files are opened in parallel. `index_path` is the index that lists
// them, or empty.
std::vector<Result<Shard>> open_shards(std::span<const std::string> paths, const std::string& index_path,
                                       const OpenOptions& options);
Result<Shard> read_shard(std::string path, std::unique_ptr<Source> source, const OpenOptions& options);

// The tables of all shards in one; TensorInfo::file is the number of the shard.
struct JoinedTables {
  LargeVector<TensorInfo> tensors;
  NameIndex index;  // for `tensors`; has the first tensor of each name
};

// Contradictions between shards and index.
struct ShardReport {
  std::vector<Error> contradictions;  // a tensor in two shards, in none, or in another one than the index says
  std::vector<std::string> warnings;  // a tensor that is not in the index, a wrong total_size: common and harmless
  JoinedTables joined;                // empty for a single file without an index
};

// `index` may be null. Ignores entries whose shard is not in `shards`: it could not be opened, which is reported elsewhere.
ShardReport check_shards(std::span<const Shard> shards, const safetensors::ShardIndex* index, const std::string& index_path);

}  // namespace ballast
