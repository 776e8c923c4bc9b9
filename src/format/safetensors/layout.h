#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/safetensors_layout.h>

namespace ballast::safetensors {

// Byte for byte as the reference would write it, but with the metadata sorted.
using Layout = SafetensorsLayout;

// Fails with kInvalidArgument on what no file can hold: names that repeat, are not UTF-8 or are `__metadata__`, shapes that
// overflow.
Result<Layout> make_layout(std::span<const TensorSpec> tensors, const Metadata& metadata, bool keep_empty_metadata = false);

// The bytes that a tensor's values take.
Result<std::uint64_t> data_bytes(const TensorSpec& tensor);

// At least as many bytes as the tensor's entry can take in a header, and as a header takes without any.
std::uint64_t entry_bound(const TensorSpec& tensor);
std::uint64_t header_bound(const Metadata& metadata);

// `{"k":"v"}`, sorted by key, as a header spells it.
std::string metadata_json(const Metadata& metadata);

}  // namespace ballast::safetensors
