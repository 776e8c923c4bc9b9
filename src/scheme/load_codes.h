#pragma once

#include <ballast/error.h>
#include <ballast/load.h>

#include "scheme/reader.h"

namespace ballast {

// All weights of a model with zero points, in one allocation and in the order of the reader. A quantized weight is three
// tensors, one after the other: its codes as U8 [rows, bytes of a row] under its own name, <name>.scales and <name>.zero_points
// as F32 [rows, groups]. Any other is one tensor.
Result<LoadedModel> load_codes(const WeightsReader& reader, const LoadOptions& options);

}  // namespace ballast
