#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor.h>
#include <ballast/tensor_spec.h>

namespace ballast {

// The header and the offsets of a SafeTensors file.
struct SafetensorsLayout {
  std::string header;                  // 8-byte length, JSON and padding
  std::vector<std::uint64_t> offsets;  // of each tensor, from the start of the file, in the order of the argument
  std::uint64_t file_size = 0;
};

// Lays out a file as the reference implementation does. Fails with kInvalidArgument if a name is a duplicate, not UTF-8 or
// `__metadata__`, or if a shape overflows.
Result<SafetensorsLayout> safetensors_layout(std::span<const TensorSpec> tensors, const Metadata& metadata = {},
                                             bool keep_empty_metadata = false);

// Fails if the number of bytes does not match the dtype and shape.
Result<void> check_bytes(const TensorView& tensor);

}  // namespace ballast
