#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ballast/model.h>

#include "scheme/parameters.h"

namespace ballast {

// Scales in the order that NVIDIA's block-scaled matrix products read them: tiles of 128 rows by 4 groups, row by row, each
// stored as 32 x 4 x 4: the scale of (r, c) is at (r % 32) * 16 + r / 32 * 4 + c in its tile.
struct SwizzledScales {
  const TensorInfo* tensor = nullptr;  // of one byte per element
  DType dtype = DType::kF8E4M3;        // of its elements, for tensors of raw bytes
  std::uint64_t groups = 1;            // per row, without those of padding
  std::uint64_t stored_groups = 1;     // per row
  const TensorInfo* factor = nullptr;  // a scalar that multiplies all scales; may be null
};
std::unique_ptr<const Parameters> swizzled_scales(const SwizzledScales& scales);

// The shape that the tensor must have.
std::vector<std::uint64_t> swizzled_shape(std::uint64_t rows, std::uint64_t groups);

}  // namespace ballast
