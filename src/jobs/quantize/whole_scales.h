#pragma once

#include "jobs/quantize/layer_coder.h"

namespace ballast {

// Measures the scale of FP8 tensors with one scale, or the divisor of scales of NVFP4, from the largest magnitude of each tensor,
// or of those that loaders join.
Result<Plan> measure_whole_scales(const Plan& plan, const LayerCoder& coder, unsigned threads);

}  // namespace ballast
