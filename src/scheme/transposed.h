#pragma once

#include <cstdint>
#include <memory>

#include <ballast/error.h>
#include <ballast/model.h>

#include "base/bytes.h"
#include "scheme/parameters.h"

namespace ballast {

// Some tensors are stored transposed: their columns are the rows of the weight. These functions read no more than the columns
// asked for; `tensor` is a matrix.

using Words = LargeVector<std::uint32_t>;

// Words of columns [first, first + count) of an I32 matrix, row after row.
Result<Words> read_words(const Model& model, const TensorInfo& tensor, std::uint64_t first, std::uint64_t count);

// The same words, column after column.
Words transposed(const Words& words, std::uint64_t columns);

// Scales as [groups, rows of the weight]. Zeros are defects.
std::unique_ptr<const Parameters> transposed_scales(const TensorInfo& scales);

}  // namespace ballast
