#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include <ballast/metadata.h>
#include <ballast/tensor.h>

#include "base/bytes.h"
#include "base/name_index.h"

namespace ballast {

// The tensors and metadata of one file. Names point into the bytes it was parsed from, or into `decoded` or `names`.
struct TensorTable {
  std::uint64_t data_start = 0;
  Metadata metadata;
  bool has_metadata = false;
  LargeVector<TensorInfo> tensors;  // sorted by (begin, end), contiguous from 0; `file` is 0
  NameIndex index;                  // of `tensors`
  LargeVector<std::uint64_t> dims;  // the shapes point into it
  std::deque<std::string> decoded;
  Bytes names;
};

}  // namespace ballast
