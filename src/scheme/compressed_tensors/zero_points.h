#pragma once

#include <cstdint>
#include <memory>

#include <ballast/model.h>

#include "scheme/parameters.h"

namespace ballast {

// Zero points in I32 words, packed down the rows: each column of words holds those of one group of columns.
struct PackedZeros {
  const TensorInfo* tensor = nullptr;
  std::uint64_t groups = 1;
  std::uint64_t matrix_rows = 0;
  std::uint64_t words = 0;  // rows of words of each matrix
  unsigned bits = 4;
  unsigned per_word = 0;  // as in Packing
};
// Zero points minus 2^(bits - 1), as codes are read.
std::unique_ptr<const Parameters> packed_zero_points(const PackedZeros& zeros);

// I8 zero points, which must be codes of so many bits.
std::unique_ptr<const Parameters> byte_zero_points(const ParameterTable& table, unsigned bits);

}  // namespace ballast
