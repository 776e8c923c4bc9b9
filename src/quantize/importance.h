#pragma once

#include <span>

namespace ballast {

// The lower bound of a column's importance: 1e-4 of the typical value, so that columns without inputs are not ignored. A few huge
// columns do not change it.
float least_importance(std::span<const float> importance);

}  // namespace ballast
