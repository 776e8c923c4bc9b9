#pragma once

#include <string>

#include "scheme/writer.h"

namespace ballast {

// The section `quantization_config` of an output, as JSON: a group for each number of bits, the most common for all linear layers
// and the others by name.
std::string compressed_tensors_section(const OutputPlan& plan);

}  // namespace ballast
