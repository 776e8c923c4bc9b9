#pragma once

#include <memory>

#include <ballast/model.h>

#include "scheme/reader.h"

namespace ballast {

// Scheme::open() of MLX.
Result<std::unique_ptr<WeightsReader>> open_mlx_reader(Model& model);

}  // namespace ballast
