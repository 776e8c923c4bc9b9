#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include <ballast/model.h>

#include "scheme/bitsandbytes/quant_state.h"
#include "scheme/layer.h"

namespace ballast {

// Rows of I8 codes, each with the largest absolute value of its row in `scales`.
std::unique_ptr<const RowDecoder> int8_decoder(const TensorInfo& codes, const TensorInfo& scales);

// The tensors of a weight with 4-bit codes. Sizes agree with its state.
struct FourBitTensors {
  const TensorInfo* codes = nullptr;       // raw bytes, whatever the dtype; the high half comes first
  const TensorInfo* map = nullptr;         // the values of the codes
  const TensorInfo* scales = nullptr;      // one for each block of the flattened weight
  const TensorInfo* nested_map = nullptr;  // the values of scales that are U8 codes
  const TensorInfo* nested_scales = nullptr;
};
std::unique_ptr<const RowDecoder> four_bit_decoder(const FourBitTensors& tensors, const QuantState& state);

}  // namespace ballast
