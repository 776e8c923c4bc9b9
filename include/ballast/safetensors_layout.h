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

// What a SafeTensors file of these tensors is made of: the header, and where the values of each begin.
struct SafetensorsLayout {
  std::string header;                  // the length, the JSON and its padding
  std::vector<std::uint64_t> offsets;  // of each tensor, from the start of the file, in the order they were given
  std::uint64_t file_size = 0;
};

// As the reference lays files out. Fails with kInvalidArgument on what no file can hold: names that repeat, are not UTF-8 or are
// `__metadata__`, shapes that overflow.
Result<SafetensorsLayout> safetensors_layout(std::span<const TensorSpec> tensors, const Metadata& metadata = {},
                                             bool keep_empty_metadata = false);

// Whether a view has as many bytes as its dtype and shape take.
Result<void> check_bytes(const TensorView& tensor);

}  // namespace ballast
