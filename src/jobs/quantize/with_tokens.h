#pragma once

#include <string>

#include <ballast/quantize.h>

namespace ballast {

// plan_quantize() with options.calibration_tokens. With a target size it records statistics, in a file that is removed.
Result<QuantizePlan> plan_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options);

// quantize_model() with options.calibration_tokens: records statistics layer by layer, then quantizes with them.
Result<QuantizeReport> quantize_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options);

}  // namespace ballast
