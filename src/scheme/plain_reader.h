#pragma once

#include <ballast/model.h>
#include <ballast/weights.h>

namespace ballast {

// A tensor that is a weight as it is.
Weight plain_weight(const Model& model, const TensorInfo& tensor);

}  // namespace ballast
