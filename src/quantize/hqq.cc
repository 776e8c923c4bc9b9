// Half-quadratic quantization: the range determines the scale, and twenty steps that are robust to outliers adjust the zero
// point.

#include "quantize/groups.h"

#include <algorithm>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/hqq.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>               // first
#include <hwy/highway.h>

#include "quantize/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

// The part of an error that counts as an outlier: |e| - |e|^(p-1) / beta, at least 0. With p = 3/4 the power needs only square
// roots, which all processors round the same.
HWY_INLINE Wide outlier(const Wide& error, float beta) {
  const Wide size = magnitude(error);
  const Wide root = larger(square_root(square_root(size)), all(1e-9F));
  return with_sign_of(larger(size - all(1.0F / beta) / root, all(0)), error);
}

struct Step {
  float error;  // of the zero point that went in
  float zero;   // that comes out
};

template <bool kWeighted>
HWY_INLINE Step improve(const GroupRun& run, std::size_t at, float scale, float zero, float beta, float count) {
  const Wide inverse = all(1.0F / scale);
  const Wide steps = all(steps_of(run.format.bits));
  Wide errors = all(0);
  Wide zeros = all(0);
  for (std::size_t i = at; i < at + run.format.group_size; i += kWide) {
    const Wide values = load_wide(run.values + i);
    const Wide code = rounded(smaller(larger(values * inverse + all(zero), all(0)), steps));
    const Wide error = values - (code - all(zero)) * all(scale);
    Wide moved = code - (values - outlier(error, beta)) * inverse;
    Wide size = magnitude(error);
    if (kWeighted) {
      const Wide importance = load_wide(run.importance + i);
      moved = moved * importance;
      size = size * importance;
    }
    zeros = zeros + moved;
    errors = errors + size;
  }
  return {.error = sum(errors), .zero = sum(zeros) / count};
}

template <bool kWeighted>
HWY_INLINE float find_zero(const GroupRun& run, std::size_t at, float scale, float zero) {
  constexpr int kSteps = 20;
  float count = 0;
  for (std::size_t i = at; i < at + run.format.group_size; ++i) count += kWeighted ? run.importance[i] : 1.0F;
  if (!(count > 0)) return zero;
  float beta = 10;
  float best_zero = zero;
  float best_error = std::numeric_limits<float>::max();
  for (int i = 0; i <= kSteps; ++i, beta *= 1.01F) {
    const Step step = improve<kWeighted>(run, at, scale, zero, beta, count);
    if (!(step.error < best_error)) break;
    best_error = step.error;
    best_zero = zero;
    zero = step.zero;
  }
  return best_zero;
}

void hqq_group(const GroupRun& run, std::size_t group) {
  const RowFormat& format = run.format;
  const std::size_t at = group * format.group_size;
  const bool is_mlx = format.affine == Affine::kScaleBias;
  const float steps = steps_of(format.bits);
  const Range range = range_of(run.values + at, format.group_size);
  const float width = (range.high - range.low) / steps;
  const Wide low = all(range.low);
  const Wide high = all(range.high);
  Parameters parameters = is_mlx ? mlx_parameters(low, high, steps) : zero_parameters(low, high, steps);
  if (width > 1e-7F) {  // else the group is constant
    const float zero = run.importance != nullptr ? find_zero<true>(run, at, width, -range.low / width)
                                                 : find_zero<false>(run, at, width, -range.low / width);
    parameters = {.scale = all(width), .offset = is_mlx ? all(-zero * width) : all(zero)};
  }
  const float scale = hn::GetLane(snapped(parameters.scale, format.parameters).part[0]);
  const float offset = hn::GetLane(without_sign_of_zero(snapped(parameters.offset, format.parameters)).part[0]);
  const float inverse = 1.0F / scale;
  store_group_codes(run.values + at, format.group_size,
                    {.inverse = inverse, .shift = is_mlx ? -offset * inverse : offset, .steps = steps}, run.codes + at);
  run.scales[group] = scale;
  run.offsets[group] = offset;
}

void hqq_groups(const GroupRun& run) {
  for (std::size_t group = 0; group < run.groups; ++group) hqq_group(run, group);
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(hqq_groups);
void hqq_groups(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(hqq_groups)(run); }
}  // namespace ballast
#endif
