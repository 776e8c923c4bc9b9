#pragma once

#include <ballast/error.h>
#include <ballast/model.h>

#include "scheme/layer.h"
#include "scheme/modelopt/config.h"

namespace ballast {

// The quantized weights of a model, whose sizes and dtypes agree with the config.
Result<Layers> find_modelopt_layers(const Model& model, const ModelOptConfig& config);

}  // namespace ballast
