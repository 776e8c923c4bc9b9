#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>
#include <ballast/error.h>

namespace ballast {

// Values that a conversion to or from an integer type changed: to an integer, fractions, NaN and numbers out of range; to a
// float, integers that it cannot represent exactly; to BOOL, anything except 0 and 1. Rounding from float to float is not a loss.
struct ConversionLoss {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // index of the first such value
};

// Every dtype converts to every other, except F6, which has no standard packing, and C64: these convert only to themselves.
bool can_convert(DType from, DType to);

// Converts all values in `in`, in C order and little endian. `out` must have exactly the size of the result. Rounds once, to
// nearest with ties to even; docs/conversions.md describes NaN, infinities and values out of range. The result does not depend on
// the processor. `in` and `out` need no alignment but must not overlap.
Result<ConversionLoss> convert_values(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace ballast
