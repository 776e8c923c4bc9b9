#pragma once

#include <memory>

#include <ballast/model.h>

#include "scheme/codes.h"
#include "scheme/parameters.h"

namespace ballast {

// Codes of 4 bits, as I32 [columns, rows of the weight / 8]; the codes of a word belong to rows 0, 2, 4, 6, 1, 3, 5 and 7.
std::unique_ptr<const Codes> awq_codes(const TensorInfo& tensor);

// Zero points, in the same way: I32 [groups, rows of the weight / 8].
std::unique_ptr<const Parameters> awq_zeros(const TensorInfo& tensor);

}  // namespace ballast
