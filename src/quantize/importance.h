#pragma once

#include <span>

namespace ballast {

// What a column counts at least, given what all count: a ten-thousandth of what is usual. One without inputs should still come
// out as something like itself. A few that are huge do not change it.
float least_importance(std::span<const float> importance);

}  // namespace ballast
