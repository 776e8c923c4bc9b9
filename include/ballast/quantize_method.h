#pragma once

#include <string_view>

namespace ballast {

// How the scale and offset of a group are chosen.
enum class QuantizeMethod {
  kAuto,    // as kSearch, with the columns weighted by how large their inputs seem to be; with statistics, by how large they are
  kRtn,     // by rounding to nearest
  kSearch,  // by the least squared error of the weights
  kHqq,     // by half-quadratic quantization
};
std::string_view name(QuantizeMethod method);  // auto, rtn, search, hqq

// Whether statistics and Hessians are used as well as they can be.
constexpr bool is_search(QuantizeMethod method) { return method == QuantizeMethod::kSearch || method == QuantizeMethod::kAuto; }

}  // namespace ballast
