#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

#include "scheme/declared.h"
#include "scheme/layer.h"

namespace ballast {

// The tensors of a weight of GPTQ or AWQ: matrices that are not empty, with the dtypes of both. `a.weight` is stored as
// `a.qweight`, `a.qzeros` and `a.scales`.
struct PackedTensors {
  std::string module;       // "a"
  const TensorInfo* codes;  // I32
  const TensorInfo* zeros;  // I32
  const TensorInfo* scales;
};

// Those of every weight that `declared` describes. kCorrupt if there is none.
Result<std::vector<PackedTensors>> find_packed(const Model& model, const Declared& declared);

// A weight of as many rows as there are scales of a group. Its decoder is missing.
Layer packed_layer(const Model& model, const PackedTensors& tensors, std::uint64_t columns, Storage storage);

}  // namespace ballast
