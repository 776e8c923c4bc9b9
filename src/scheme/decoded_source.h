#pragma once

#include <memory>
#include <optional>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/weights.h>

#include "source/source.h"

namespace ballast {

// A virtual SafeTensors file: a header of the logical weights, and their values, decoded on reading.
Result<std::unique_ptr<Source>> open_decoded(Weights weights, std::optional<DType> dtype);

// The default dtype of decoded weights: their original dtype, or F32 if that has fewer than 16 bits.
DType decoded_dtype(const Weight& weight);

}  // namespace ballast
