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

// The files of a model directory that go along with its weights: all but weights of any format, folders and hidden files.
// config.json gets `dtype`, unless that is empty.
Result<std::vector<Companion>> find_companions(const Folder& folder, std::string_view dtype);

// Takes out what is about quantized weights which the output does not have: files, and sections of config.json.
Result<void> drop_quantization(std::vector<Companion>& companions);

// What a config calls the dtype that most bytes of the floating tensors have; empty without any.
std::string_view main_dtype(std::span<const TensorSpec> tensors);

// The text of a config whose `torch_dtype` and `dtype`, at the root and in sections such as `text_config`, are `dtype`. Nothing
// else changes, and what is not there is not added. `config` must be valid.
std::string with_dtype(std::string_view config, std::string_view dtype);

// Likewise the files alone.
void leave_out_quantization(std::vector<Companion>& companions);

}  // namespace ballast
