#pragma once

#include <memory>

#include <ballast/model.h>

#include "scheme/reader.h"

namespace ballast {

// Scheme::open() of MLX. `is_declared`: a section of the config names its quantizer.
Result<std::unique_ptr<WeightsReader>> open_mlx_reader(Model& model, bool is_declared);

}  // namespace ballast
