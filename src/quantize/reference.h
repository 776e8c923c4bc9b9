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

// The same for zero points that are codes: has_whole_zero().
ReferenceGroup quantize_whole_zero_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                                                std::span<const float> importance, std::span<std::uint8_t> codes);

// A value rounded to a dtype.
float round_by_reference(float value, DType dtype);

// The same for float types. `weights` is the dtype that the values have.
ReferenceGroup quantize_elements_by_reference(QuantizeMethod method, const RowFormat& format, DType weights,
                                              std::span<const float> values, std::span<const float> importance,
                                              std::span<std::uint8_t> codes);
// The scale of the values of a band, for types whose scales are floats, and then their codes.
float band_scale_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                              std::span<const float> importance);
void code_by_reference(const RowFormat& format, std::span<const float> values, float scale, std::span<std::uint8_t> codes);
// The value of a code.
float element_by_reference(Element element, std::uint8_t code);

}  // namespace ballast
