#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/dtype.h>
#include <ballast/error.h>

namespace ballast {

// Values that a conversion to or from an integer type could not keep: fractions, NaN and numbers out of range on the way to an
// integer, integers with more digits than a float has, anything but 0 and 1 as BOOL. Rounding from float to float is no loss.
struct ConversionLoss {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // the index of the first such value
};

// Every dtype converts to itself, and all to each other except F6, whose packing nobody has agreed on, and C64.
bool can_convert(DType from, DType to);

// Converts as many values as `in` holds, in C order and little endian, to exactly the bytes of `out`. Rounds once, to nearest and
// ties to even; docs/conversions.md says what becomes of NaN, infinities and values out of range. The result depends on the
// values alone, not on the processor. `in` and `out` may lie at any address but may not overlap.
Result<ConversionLoss> convert_values(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace ballast
