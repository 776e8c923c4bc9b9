#include "scheme/matrix.h"

#include <functional>
#include <numeric>

namespace ballast {

bool is_quantizable(const TensorInfo& tensor) {
  const DType dtype = tensor.dtype;
  const bool is_float = info(dtype).kind == NumberKind::kFloat && bits(dtype) >= 8 && dtype != DType::kF8E8M0;
  return is_float && tensor.shape.size() >= 2 && tensor.elements() > 0;
}

std::uint64_t product(Shape shape) { return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies()); }

}  // namespace ballast
