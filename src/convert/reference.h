#pragma once

#include <cstddef>
#include <span>

#include <ballast/convert.h>
#include <ballast/dtype.h>

namespace ballast {

// The expected result of convert_values(), byte for byte. Converts one value at a time in integer arithmetic, by the rules of
// docs/conversions.md. For tests and benchmarks. `out` must have the right size.
ConversionLoss convert_by_reference(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace ballast
