#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

namespace ballast::safetensors {

// Which of `tensors` go into which file of at most `max_bytes` each, header included, in their order. A file exceeds that only
// when it holds a single tensor that does.
Result<std::vector<std::vector<std::size_t>>> plan_shards(std::span<const TensorSpec> tensors, const Metadata& metadata,
                                                          std::uint64_t max_bytes);

// model-00002-of-00005.safetensors; a model of one file is model.safetensors.
std::string shard_name(std::size_t shard, std::size_t count);

// The text of model.safetensors.index.json. `metadata` are members beside total_size, as JSON.
std::string index_text(std::span<const TensorSpec> tensors, std::span<const std::vector<std::size_t>> shards,
                       std::uint64_t total_size, std::string_view metadata = {});

}  // namespace ballast::safetensors
