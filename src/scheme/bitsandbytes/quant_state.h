#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>

namespace ballast {

// What a tensor `<weight>.quant_state.bitsandbytes__nf4` says: JSON text.
struct QuantState {
  std::string type;  // nf4 or fp4
  std::uint64_t block_size = 0;
  std::optional<DType> dtype;        // of the original; empty if it is none that Ballast decodes to
  std::vector<std::uint64_t> shape;  // of the original; no dimension is 0, and the product fits
  std::uint64_t elements = 0;
  // For scales that are quantized themselves.
  std::uint64_t nested_block_size = 0;  // 0: they are not
  float nested_offset = 0;
};

// `place` is for messages. `type` is what the tensor's name says.
Result<QuantState> parse_quant_state(std::string_view json, const std::string& place, std::string_view type);

}  // namespace ballast
