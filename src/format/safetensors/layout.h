#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/safetensors_layout.h>

namespace ballast::safetensors {

// Byte for byte what the reference implementation writes, except that the metadata is sorted.
using Layout = SafetensorsLayout;

// Fails with kInvalidArgument if a name is a duplicate, not UTF-8 or `__metadata__`, or if a shape overflows.
Result<Layout> make_layout(std::span<const TensorSpec> tensors, const Metadata& metadata, bool keep_empty_metadata = false);

// The size of the tensor's values in bytes.
Result<std::uint64_t> data_bytes(const TensorSpec& tensor);

// Upper bounds in bytes: of a tensor's entry in a header, and of a header without tensors.
std::uint64_t entry_bound(const TensorSpec& tensor);
std::uint64_t header_bound(const Metadata& metadata);

// `{"k":"v"}`, sorted by key, as in a header.
std::string metadata_json(const Metadata& metadata);

}  // namespace ballast::safetensors
