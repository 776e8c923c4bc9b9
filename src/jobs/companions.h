#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/sink.h>

#include "output/output.h"
#include "source/path/folder.h"

namespace ballast {

// The files of a model directory to copy with its weights: all but weights of any format, subdirectories and hidden files. The
// dtype in config.json becomes `dtype`, unless that is empty.
Result<std::vector<Companion>> find_companions(const Folder& folder, std::string_view dtype);

// Removes files and sections of config.json that describe quantized weights.
Result<void> drop_quantization(std::vector<Companion>& companions);

// The most common dtype of the floating tensors, by bytes, as named in a config; empty without any.
std::string_view main_dtype(std::span<const TensorSpec> tensors);

// Replaces `torch_dtype` and `dtype` of a config, at the root and in sections such as `text_config`. Adds nothing. `config` must
// be valid JSON.
std::string with_dtype(std::string_view config, std::string_view dtype);

// Removes the files alone.
void leave_out_quantization(std::vector<Companion>& companions);

// A line about stored tensors that have no place among decoded weights; empty if there are none.
std::string describe_dropped(std::span<const std::string> names);

}  // namespace ballast
