#pragma once

#include <cstdint>
#include <memory>

#include <ballast/model.h>

#include "scheme/codes.h"

namespace ballast {

// 4-bit codes of which each byte has two of one column: of an even row in the low bits, and of the next row in the high bits.
std::unique_ptr<const Codes> row_pair_codes(const TensorInfo& tensor, std::uint64_t columns, const NibbleTable& table);

// Two's complement.
extern const NibbleTable kInt4;

}  // namespace ballast
