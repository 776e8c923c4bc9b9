#pragma once

#include <cstdint>
#include <span>

#include "quantize/rows.h"

namespace ballast {

// The expected results, bit for bit: one value at a time, in plain C++. Tests compare every instruction set with it.
struct ReferenceGroup {
  float scale;
  float offset;
};

// `importance` is empty, or has one weight for each value of the group.
ReferenceGroup quantize_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                                     std::span<const float> importance, std::span<std::uint8_t> codes);

// The same for float types. `weights` is the dtype that the values have.
ReferenceGroup quantize_elements_by_reference(QuantizeMethod method, const RowFormat& format, DType weights,
                                              std::span<const float> values, std::span<const float> importance,
                                              std::span<std::uint8_t> codes);
// A value after rounding to a float dtype.
float rounded_by_reference(float value, DType dtype);
// The value of a code.
float element_by_reference(Element element, std::uint8_t code);

}  // namespace ballast
