#pragma once

#include <string_view>

namespace ballast {

// How the scale and offset of a group are chosen: by rounding to nearest, by search, or by half-quadratic quantization.
enum class QuantizeMethod { kRtn, kSearch, kHqq };
std::string_view name(QuantizeMethod method);  // rtn, search, hqq

}  // namespace ballast
