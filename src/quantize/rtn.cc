// Round to nearest: the range of a group, cut into equal steps. For MLX this is mlx.core.quantize on the CPU, bit for bit.

#include "quantize/groups.h"

#include <algorithm>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/rtn.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>               // first
#include <hwy/highway.h>

#include "quantize/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

// The codes nearest to (w - bias) / scale, by true division. Multiplying by 1 / scale gives the same code unless the quotient is
// next to the middle between two, so only then is there a division. A reciprocal and a product are each off by half a unit in the
// last place of a number below 256: far less than the margin.
HWY_INLINE void store_divided_codes(const float* values, std::size_t count, float scale, float bias, float steps,
                                    std::uint8_t* codes) {
  const Wide inverse = all(1.0F / scale);
  const Wide near_middle = all(0.499F);
  for (std::size_t i = 0; i < count; i += kWide) {
    const Wide distance = load_wide(values + i) - all(bias);
    Wide quotient = smaller(larger(distance * inverse, all(-1)), all(steps + 1));
    if (!all_true(magnitude(quotient - rounded(quotient)) < near_middle)) quotient = distance / all(scale);
    store_codes_wide(smaller(larger(quotient, all(0)), all(steps)), codes + i);
  }
}

void rtn_groups(const GroupRun& run) {
  const RowFormat& format = run.format;
  const float steps = steps_of(format.bits);
  const bool is_mlx = format.affine == Affine::kScaleBias;
  alignas(64) std::array<float, kWide> lows{};
  alignas(64) std::array<float, kWide> highs{};
  alignas(64) std::array<float, kWide> scales{};
  alignas(64) std::array<float, kWide> offsets{};
  for (std::size_t begin = 0; begin < run.groups; begin += kWide) {
    const std::size_t groups = std::min(kWide, run.groups - begin);
    for (std::size_t i = 0; i < groups; ++i) {
      const Range range = range_of(run.values + (begin + i) * format.group_size, format.group_size);
      lows[i] = range.low;
      highs[i] = range.high;
    }
    const Wide low = load_wide(lows.data());
    const Wide high = load_wide(highs.data());
    const Parameters parameters = is_mlx ? mlx_parameters(low, high, steps) : zero_parameters(low, high, steps);
    store_wide(parameters.scale, scales.data());
    store_wide(parameters.offset, offsets.data());
    for (std::size_t i = 0; i < groups; ++i) {
      const float* const values = run.values + (begin + i) * format.group_size;
      std::uint8_t* const codes = run.codes + (begin + i) * format.group_size;
      if (is_mlx) {
        store_divided_codes(values, format.group_size, scales[i], offsets[i], steps, codes);
      } else {
        store_group_codes(values, format.group_size, {.inverse = 1.0F / scales[i], .shift = offsets[i], .steps = steps}, codes);
      }
    }
    store_wide(snapped(parameters.scale, format.parameters), scales.data());
    store_wide(snapped(parameters.offset, format.parameters), offsets.data());
    std::copy_n(scales.begin(), groups, run.scales + begin);
    std::copy_n(offsets.begin(), groups, run.offsets + begin);
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(rtn_groups);
void rtn_groups(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(rtn_groups)(run); }
}  // namespace ballast
#endif
