#pragma once

#include <cstdint>

#include <ballast/tensor.h>

namespace ballast {

// Whether any scheme could quantize a tensor: floats of two or more dimensions. F8_E8M0 has no sign: it is for scales.
bool is_quantizable(const TensorInfo& tensor);

std::uint64_t product(Shape shape);

}  // namespace ballast
