#pragma once

#include <memory>
#include <optional>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/weights.h>

#include "source/source.h"

namespace ballast {

// A SafeTensors file that is not there: a header of the logical weights, and their values, decoded when they are read.
Result<std::unique_ptr<Source>> open_decoded(Weights weights, std::optional<DType> dtype);

// What quantized weights become without a choice: their original dtype, F32 where that has fewer than 16 bits.
DType decoded_dtype(const Weight& weight);

}  // namespace ballast
