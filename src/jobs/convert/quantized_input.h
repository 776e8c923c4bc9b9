#pragma once

#include <string>

#include <ballast/convert_model.h>

#include "jobs/convert/selection.h"

namespace ballast {

// Refuses to copy stored codes without their scales and biases, or without the config that describes them.
Result<void> check_codes(const Model& model, const Selection& selection, const std::string& path, const ConvertOptions& options);

// Refuses to replace a model with its decoded or merged weights.
Result<void> check_decoded(const Model& model, const std::string& path);

}  // namespace ballast
