#pragma once

#include <optional>

#include <ballast/model.h>
#include <ballast/quantization_config.h>

namespace ballast {

// read_quantization_config() of a model that is open, whose config.json is not read again; empty for a lone file.
Result<std::optional<QuantizationConfig>> quantization_config_of(const Model& model);

}  // namespace ballast
