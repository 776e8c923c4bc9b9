#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include <ballast/metadata.h>
#include <ballast/tensor.h>

#include "base/bytes.h"
#include "base/name_index.h"

namespace ballast {

// What one file says that it holds. Names borrow from the bytes it was parsed from, or from `decoded` or `names`.
struct TensorTable {
  std::uint64_t data_start = 0;
  Metadata metadata;
  bool has_metadata = false;
  LargeVector<TensorInfo> tensors;  // by (begin, end), packed from 0 without holes; `file` is 0
  NameIndex index;                  // of `tensors`
  LargeVector<std::uint64_t> dims;  // what the shapes borrow from
  std::deque<std::string> decoded;
  Bytes names;
};

}  // namespace ballast
