#pragma once

#include <string_view>

namespace ballast {

// How quantized values and their scales are stored.
enum class QuantizeType {
  kInt,    // integers with a scale and an offset; bits and group size are settings
  kFp8,    // E4M3 values with a float as scale, for a row, a tensor or a block
  kMxfp4,  // E2M1 values, 32 to a power of two as scale
  kMxfp8,  // E4M3 values, 32 to a power of two as scale
  kNvfp4,  // E2M1 values, 16 to an E4M3 scale
};
std::string_view name(QuantizeType type);  // int, fp8, mxfp4, mxfp8, nvfp4

// The values that share a scale: all of a tensor, a row, part of a row, or 128 × 128 of a matrix.
enum class Strategy { kTensor, kChannel, kGroup, kBlock };
std::string_view name(Strategy strategy);  // tensor, channel, group, block

}  // namespace ballast
