#pragma once

#include <string>

#include <ballast/quantize.h>

namespace ballast {

// Dequantizes the quantized components of a pipeline, and copies the others.
Result<ConvertReport> dequantize_pipeline(const std::string& pipeline, const std::string& directory,
                                          const DequantizeOptions& options);

}  // namespace ballast
