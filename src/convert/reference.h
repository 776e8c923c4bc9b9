#pragma once

#include <cstddef>
#include <span>

#include <ballast/convert.h>
#include <ballast/dtype.h>

namespace ballast {

// What convert_values() must give, to the byte: one value at a time, in integer arithmetic, by the rules of docs/conversions.md.
// Tests and benchmarks compare with it. `out` has the right size.
ConversionLoss convert_by_reference(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace ballast
