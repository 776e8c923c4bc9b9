#include "quantize/value_type.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ballast {

std::string_view name(QuantizeType type) {
  constexpr std::array<std::string_view, 5> kNames{"int", "fp8", "mxfp4", "mxfp8", "nvfp4"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name(Strategy strategy) {
  constexpr std::array<std::string_view, 4> kNames{"tensor", "channel", "group", "block"};
  return kNames[static_cast<std::size_t>(strategy)];
}

const FloatType* float_type(QuantizeType type) {
  static constexpr std::array<FloatType, 4> kTypes{{
      {.type = QuantizeType::kFp8, .element = Element::kFloat8, .scales = std::nullopt, .bits = 8, .group_size = 128},
      {.type = QuantizeType::kMxfp4, .element = Element::kFloat4, .scales = DType::kF8E8M0, .bits = 4, .group_size = 32},
      {.type = QuantizeType::kMxfp8, .element = Element::kFloat8, .scales = DType::kF8E8M0, .bits = 8, .group_size = 32},
      {.type = QuantizeType::kNvfp4, .element = Element::kFloat4, .scales = DType::kF8E4M3, .bits = 4, .group_size = 16},
  }};
  const auto* const found = std::ranges::find(kTypes, type, &FloatType::type);
  return found == kTypes.end() ? nullptr : found;
}

}  // namespace ballast
