#pragma once

#include <cstdint>
#include <memory>

#include <ballast/model.h>

#include "scheme/codes.h"
#include "scheme/layer.h"
#include "scheme/parameters.h"

namespace ballast {

// (code - zero) * scale, with scales and zero points for groups of columns. Every operation is rounded to F32.
struct Grouped {
  std::uint64_t columns = 0;
  std::uint64_t group_size = 0;  // columns that share parameters, unless there is a group index
  std::unique_ptr<const Codes> codes;
  std::unique_ptr<const Parameters> scales;
  std::unique_ptr<const Parameters> zeros = nullptr;  // null: none
  const TensorInfo* group_index = nullptr;            // I32, for every column its group
  bool allows_unset = true;                           // whether -1 in the index is the group by position, or an error
  const TensorInfo* column_factors = nullptr;         // one for every column, multiplied last
};

std::unique_ptr<const RowDecoder> grouped_decoder(Grouped grouped);

}  // namespace ballast
