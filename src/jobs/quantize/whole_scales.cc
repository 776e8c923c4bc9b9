#include "jobs/quantize/whole_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/block_loop.h"
#include "base/try.h"
#include "plan/fused_layers.h"
#include "quantize/rows.h"

namespace ballast {
namespace {

bool has_divisor(const LayerPlan& plan, const WritableScheme& scheme) {
  return plan.type == QuantizeType::kNvfp4 && scheme.has_fused_layers();
}

// As compressed-tensors computes them.
float scale_of(const WeightLayout& layout, float largest) {
  constexpr float kLargestScale = 448;
  constexpr float kLargestElement = 6;
  if (layout.type == QuantizeType::kNvfp4) {
    const float divisor = kLargestScale * kLargestElement / std::max(largest, std::numeric_limits<float>::min());
    return std::isfinite(divisor) ? divisor : 1;
  }
  return fp8_scale(largest, layout.parameters);
}

// The largest magnitude of each tensor of `layouts` that is not empty.
Result<std::vector<float>> find_largest(const LayerCoder& coder, std::span<const WeightLayout> layouts, unsigned threads) {
  std::vector<TensorBlock> blocks;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (!layouts[i].is_quantized()) continue;
    for (TensorBlock block : cut_blocks(layouts.subspan(i, 1))) {
      block.tensor = i;
      blocks.push_back(block);
    }
  }
  std::vector<float> of_blocks(blocks.size());
  std::vector<CodedBuffers> buffers(threads);
  const auto measure = [&](unsigned worker, std::size_t i) -> Result<void> {
    const WeightLayout& layout = layouts[blocks[i].tensor];
    TRY(coder.read(layout, blocks[i].first_row, blocks[i].rows, buffers[worker].in));
    of_blocks[i] = largest_magnitude(layout.dtype, buffers[worker].in);
    return {};
  };
  TRY((BlockLoop{.work = coder.work(), .threads = threads}.run(
      blocks.size(), measure, [&](std::size_t i) { return BlockDone{.what = layouts[blocks[i].tensor].name}; })));
  std::vector<float> largest(layouts.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) largest[blocks[i].tensor] = std::max(largest[blocks[i].tensor], of_blocks[i]);
  return largest;
}

}  // namespace

Result<Plan> measure_whole_scales(const Plan& plan, const LayerCoder& coder, unsigned threads) {
  std::vector<WeightLayout> layouts(plan.size());
  bool is_any = false;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool is_whole = plan[i].strategy == Strategy::kTensor || has_divisor(plan[i], coder.scheme());
    if (!plan[i].is_quantized() || !is_whole) continue;
    layouts[i] = coder.layout(i, plan[i]);
    is_any = true;
  }
  if (!is_any) return plan;
  std::vector<float> largest = TRY(find_largest(coder, layouts, threads));
  for (const std::vector<std::size_t>& tensors : find_sharing(coder.model())) {
    float most = 0;
    for (const std::size_t i : tensors) most = std::max(most, largest[i]);
    for (const std::size_t i : tensors) largest[i] = most;
  }
  for (std::size_t i = 0; i < plan.size(); ++i) largest[i] = layouts[i].is_quantized() ? scale_of(layouts[i], largest[i]) : 0;
  return plan.with_whole_scales(largest);
}

}  // namespace ballast
