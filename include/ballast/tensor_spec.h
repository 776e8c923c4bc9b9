#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/dtype.h>

namespace ballast {

// A tensor to write.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
};

}  // namespace ballast
