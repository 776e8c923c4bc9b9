#pragma once

#include <cstdint>
#include <span>

#include "quantize/hessian.h"
#include "quantize/rows.h"

namespace ballast {

struct GptqSums {
  QualitySums quality;  // as compare_rows() gives it
  // The sum of e H eᵀ over the errors e of all rows, with H divided by its mean diagonal and not damped. Times that mean, it is
  // the sum of squares that the layer's outputs are off by.
  double output_error = 0;
};

// Quantizes whole rows as quantize_rows() does, but a column after the other, each moved first by what makes good for the errors
// of those before it: GPTQ, in the form that needs no inverse of H. The parameters of a group are searched for when its turn
// comes, with the pivots of H for importance; `importance` is for the figures alone. `feedback` has as many columns as the rows.
// What becomes of a row does not depend on others.
GptqSums gptq_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const Feedback& feedback,
                   const CodedRows& out, std::span<const float> importance = {});

// The memory that a call needs for itself.
std::uint64_t gptq_bytes(const RowFormat& format);

}  // namespace ballast
