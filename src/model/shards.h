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

// One weight file with its header read. Errors name the file.
struct Shard {
  std::string path;
  Format format = Format::kSafetensors;
  std::uint64_t file_size = 0;
  std::unique_ptr<Source> source;  // of tensor data in binary: the file itself, or what stands for it
  Bytes front;                     // what the header's names borrow from, unless it keeps them itself
  TensorTable header;
};

// Each of the files, in their order; those on servers at the same time. `index_path` names the index that lists them, empty
// without one.
std::vector<Result<Shard>> open_shards(std::span<const std::string> paths, const std::string& index_path,
                                       const OpenOptions& options);
Result<Shard> read_shard(std::string path, std::unique_ptr<Source> source, const OpenOptions& options);

// The tables of all shards as one; `file` counts the shards.
struct JoinedTables {
  LargeVector<TensorInfo> tensors;
  NameIndex index;  // of `tensors`; of those with one name, the first
};

// How shards and index contradict each other.
struct ShardReport {
  std::vector<Error> contradictions;  // a tensor in two shards, in none, in another than the index says
  std::vector<std::string> oddities;  // a tensor that the index does not list, a wrong total_size: common, and harmless
  JoinedTables joined;                // empty of a file without an index, which needs none
};

// `index` may be null. Entries whose shard is not among `shards` are passed over: it could not be opened, which has been said.
ShardReport check_shards(std::span<const Shard> shards, const safetensors::ShardIndex* index, const std::string& index_path);

}  // namespace ballast
