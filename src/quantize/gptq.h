#pragma once

#include <cstdint>
#include <span>

#include "quantize/hessian.h"
#include "quantize/rows.h"

namespace ballast {

inline constexpr unsigned kRefinements = 4;  // more gain next to nothing

struct GptqSums {
  QualitySums quality;  // as compare_rows() gives it
  // The sum of e H eᵀ over the errors e of all rows, with H divided by its mean diagonal and not damped. Times that mean, it is
  // the sum of squares that the layer's outputs are off by.
  double output_error = 0;
};

// GPTQ in the form that needs no inverse of H: quantizes whole rows column by column, and compensates for the errors of earlier
// columns by moving each column first. The parameters of a group are searched for at its first column, with the pivots of H as
// importance; `importance` is used for the metrics alone. Then the parameters of each group and the code of each column are
// refined in turn while all others stay, `passes` times; every step lowers e H eᵀ. `feedback` has as many columns as the rows.
// Rows do not affect each other.
GptqSums gptq_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const Feedback& feedback,
                   const CodedRows& out, std::span<const float> importance = {}, unsigned passes = kRefinements);

// The memory that a call allocates.
std::uint64_t gptq_bytes(const RowFormat& format);

}  // namespace ballast
