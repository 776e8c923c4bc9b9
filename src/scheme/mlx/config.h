#pragma once

#include <optional>

#include <ballast/mlx_quantization.h>
#include <ballast/model.h>

namespace ballast {

// read_mlx_quantization() of a model that is open, whose config.json is not read again; empty for a lone file.
Result<std::optional<MlxQuantization>> mlx_quantization_of(const Model& model);

}  // namespace ballast
