#pragma once

#include <string>

#include <ballast/quantize.h>

namespace ballast {

// Whether the directory is already what quantize_model() would write, complete and newer than its inputs.
Result<bool> is_up_to_date(const Model& model, const std::string& directory, const QuantizeOptions& options);

}  // namespace ballast
