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

// The files beside the weights of a model directory, also those in folders.
struct Companions {
  std::vector<Companion> files;         // to copy
  std::vector<std::string> not_copied;  // names, sorted
};

// Finds them. Weights other than `weights`, the files of the model, are not copied, except those of folders that modules.json
// lists: they are parts of the model. Hidden files and folders are ignored. The dtype in config.json becomes `dtype`, unless that
// is empty.
Result<Companions> find_companions(const Folder& folder, std::span<const std::string> weights, std::string_view dtype);

// Removes files and sections of config.json that describe quantized weights.
Result<void> drop_quantization(Companions& companions);

// The most common dtype of the floating tensors, by bytes, as named in a config; empty without any.
std::string_view main_dtype(std::span<const TensorSpec> tensors);

// Replaces `torch_dtype` and `dtype` of a config, at the root and in sections such as `text_config`. Adds nothing. `config` must
// be valid JSON.
std::string with_dtype(std::string_view config, std::string_view dtype);

// The names of an output directory with these files beside weights of this stem; its shards may have more.
std::vector<std::string> names_of(const Companions& companions, std::string_view stem);

// Removes the files alone.
void leave_out_quantization(Companions& companions);

// Removes the files in which a quantizer describes its weights.
void leave_out_claims(Companions& companions);

// Removes files by name.
void leave_out(Companions& companions, std::string_view name);

// A note about the files that are not copied; empty if there are none.
std::string describe_not_copied(std::span<const std::string> not_copied);

// A line about stored tensors that have no place among decoded weights; empty if there are none.
std::string describe_dropped(std::span<const std::string> names);

}  // namespace ballast
