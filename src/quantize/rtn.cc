// Round to nearest: the range of a group, cut into equal steps. For MLX this is mlx.core.quantize on the CPU, bit for bit.

#include "quantize/groups.h"

#include <algorithm>
#include <cmath>
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

// The codes nearest to (w - bias) / scale, by true division. Multiplying by 1 / scale gives the same unless the quotient is next
// to the middle between two codes, so only groups that have such a one are divided. Reciprocal, product and quotient are each off
// by half a unit in the last place of a number below 256: together less than the margin.
template <bool kDivides>
HWY_INLINE bool try_codes(const float* values, std::size_t count, float scale, float bias, float steps, std::uint8_t* codes) {
  const CodeLanes d;
  const hn::RebindToSigned<CodeLanes> di;
  const auto inverse = hn::Set(d, 1.0F / scale);
  const auto shift = hn::Set(d, kIntegerShift);
  auto off = hn::Zero(di);  // floats without a sign are in the order of their bits
  CodeVector shifted[4];    // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t i = 0; i < count; i += kCodesAtOnce) {
    for (std::size_t j = 0; j < 4; ++j) {
      const auto distance = hn::Sub(hn::LoadU(d, values + i + j * (kCodesAtOnce / 4)), hn::Set(d, bias));
      const auto quotient = kDivides ? hn::Div(distance, hn::Set(d, scale)) : hn::Mul(distance, inverse);
      shifted[j] = hn::Add(quotient, shift);
      if (!kDivides) off = hn::Max(off, hn::BitCast(di, hn::Abs(hn::Sub(quotient, hn::Sub(shifted[j], shift)))));
    }
    store_codes_up_to(steps, shifted, codes + i);
  }
  return hn::AllTrue(d, hn::Lt(hn::BitCast(d, off), hn::Set(d, 0.4999F)));
}

void store_divided_codes(const float* values, std::size_t count, float scale, float bias, float steps, std::uint8_t* codes) {
  const bool has_inverse = std::abs(scale) >= std::numeric_limits<float>::min();
  if (has_inverse && try_codes<false>(values, count, scale, bias, steps, codes)) return;
  try_codes<true>(values, count, scale, bias, steps, codes);
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
