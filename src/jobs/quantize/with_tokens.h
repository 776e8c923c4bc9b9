#pragma once

#include <string>

#include <ballast/quantize.h>

namespace ballast {

// Refuses options that exclude calibration_tokens.
Result<void> check_calibration_tokens(const QuantizeOptions& options);

// quantize_model() with options.calibration_tokens: records statistics layer by layer, then quantizes with them.
Result<QuantizeReport> quantize_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options);

}  // namespace ballast
