#pragma once

#include <string_view>

namespace ballast {

// How the scale and offset of a group are chosen.
enum class QuantizeMethod { kRtn, kSearch, kHqq };
std::string_view name(QuantizeMethod method);  // rtn, search, hqq

}  // namespace ballast
