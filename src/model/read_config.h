#pragma once

#include <optional>

#include <ballast/config.h>
#include <ballast/error.h>

#include "source/path/folder.h"

namespace ballast {

// The config.json of a folder, if it has one. A quantization_config.json beside it makes the model quantized, too. Errors name
// the file.
Result<std::optional<ModelConfig>> read_config(const Folder& folder);

}  // namespace ballast
