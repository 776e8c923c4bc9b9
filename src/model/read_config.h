#pragma once

#include <optional>

#include <ballast/config.h>
#include <ballast/error.h>

#include "source/path/folder.h"

namespace ballast {

// Reads the config.json of a folder, if it exists. A quantization_config.json beside it also marks the model as quantized. Error
// messages contain the file.
Result<std::optional<ModelConfig>> read_config(const Folder& folder);

}  // namespace ballast
