#include "scheme/writer.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ballast {

std::uint64_t WeightLayout::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

RowFormat WeightLayout::format() const {
  const FloatType* const floats = float_type(type);
  return {.columns = columns,
          .bits = bits,
          .group_size = padded_group_size(group_size),
          .affine = affine,
          .parameters = parameters,
          .restore = restore,
          .element = floats == nullptr ? Element::kInteger : floats->element,
          .power_rule = power_rule,
          .is_aligned = is_aligned,
          .band_rows = strategy == Strategy::kBlock ? kScaleBlock : 1,
          .whole_scale = whole_scale};
}

std::vector<TensorBlock> cut_blocks(std::span<const WeightLayout> weights) {
  std::vector<TensorBlock> blocks;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::uint64_t most = weights[i].is_quantized() ? weights[i].format().block_rows() : rows_of_block(weights[i].columns);
    const std::uint64_t rows = weights[i].rows;
    const auto count = static_cast<std::uint32_t>(std::max<std::uint64_t>((rows + most - 1) / most, 1));
    for (std::uint32_t number = 0; number < count; ++number) {
      blocks.push_back({.tensor = i,
                        .first_row = number * most,
                        .rows = std::min(most, rows - number * most),
                        .number = number,
                        .count = count});
    }
  }
  return blocks;
}

std::uint64_t OutputPlan::parameter_count() const {
  std::uint64_t count = 0;
  for (const WeightLayout& weight : weights) count += weight.elements();
  return count;
}

}  // namespace ballast
