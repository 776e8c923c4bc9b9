#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

namespace ballast::safetensors {

// Splits `tensors`, in order, into files of at most `max_bytes` with their headers. Only a file with a single tensor may be
// larger. 0 means no limit.
Result<std::vector<std::vector<std::size_t>>> plan_shards(std::span<const TensorSpec> tensors, const Metadata& metadata,
                                                          std::uint64_t max_bytes);

// STEM-00002-of-00005.safetensors; STEM.safetensors if there is only one file.
std::string shard_name(std::string_view stem, std::size_t shard, std::size_t count);

// The text of STEM.safetensors.index.json. `metadata` are additional JSON members beside total_size.
std::string index_text(std::string_view stem, std::span<const TensorSpec> tensors,
                       std::span<const std::vector<std::size_t>> shards, std::uint64_t total_size,
                       std::string_view metadata = {});

}  // namespace ballast::safetensors
