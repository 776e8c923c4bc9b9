#pragma once

#include <ballast/mlx_quantization.h>

#include "quantize/value_type.h"

namespace ballast {

// The mode of MLX that stores a type, and the reverse.
constexpr QuantizationMode mode_of(QuantizeType type) {
  switch (type) {
    case QuantizeType::kInt:
    case QuantizeType::kFp8: break;
    case QuantizeType::kMxfp4: return QuantizationMode::kMxfp4;
    case QuantizeType::kMxfp8: return QuantizationMode::kMxfp8;
    case QuantizeType::kNvfp4: return QuantizationMode::kNvfp4;
  }
  return QuantizationMode::kAffine;
}

constexpr QuantizeType type_of(QuantizationMode mode) {
  switch (mode) {
    case QuantizationMode::kAffine: break;
    case QuantizationMode::kMxfp4: return QuantizeType::kMxfp4;
    case QuantizationMode::kMxfp8: return QuantizeType::kMxfp8;
    case QuantizationMode::kNvfp4: return QuantizeType::kNvfp4;
  }
  return QuantizeType::kInt;
}

}  // namespace ballast
