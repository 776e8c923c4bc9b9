// Round to nearest: the range of a group in equal steps. For MLX, bit for bit as mlx.core.quantize on a CPU.

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

// A group's codes are those nearest to (w - bias) / scale, by true division.
void divide_codes(const float* values, std::size_t count, float scale, float bias, float steps, std::uint8_t* codes) {
  const CodeLanes d;
  CodeVector shifted[4];  // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t i = 0; i < count; i += kCodesAtOnce) {
    for (std::size_t j = 0; j < 4; ++j) {
      const auto distance = hn::Sub(hn::LoadU(d, values + i + j * (kCodesAtOnce / 4)), hn::Set(d, bias));
      shifted[j] = hn::Add(hn::Div(distance, hn::Set(d, scale)), hn::Set(d, kIntegerShift));
    }
    store_codes_up_to(steps, shifted, codes + i);
  }
}

// w * inverse + start gives the same codes without a division, unless the quotient is close to the middle between two codes.
struct Shortcut {
  Wide inverse;
  Wide start;  // infinite where the group has to be divided
};

// The threshold for "close". With n = steps + 1, the quotient and the start are at most n, the product is at most 2 n, and each
// of the seven roundings is off by at most half a unit in the last place: together by less than 8 n / 2^24.
HWY_INLINE float least_gap(float steps) { return (steps + 1) * 0x1p-21F; }

HWY_INLINE Shortcut shortcut_of(const Parameters& parameters, float steps) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  const Wide size = magnitude(parameters.scale);
  const Wide inverse = all(1) / parameters.scale;
  const Wide start = negative(parameters.offset) * inverse;
  const WideMask precise = (all(kLeast) < size) & (size < all(1 / kLeast)) & (magnitude(start) < all(steps + 1));
  return {.inverse = inverse, .start = choose(precise, start, all(std::numeric_limits<float>::infinity()))};
}

// False if a quotient is too close to the middle.
HWY_INLINE bool try_shortcut(const float* values, std::size_t count, float inverse, float start, float steps,
                             std::uint8_t* codes) {
  const CodeLanes d;
  const hn::RebindToSigned<CodeLanes> di;
  const auto shift = hn::Set(d, kIntegerShift);
  auto off = hn::Zero(di);  // floats without a sign are in the order of their bits, and NaN comes last
  CodeVector shifted[4];    // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t i = 0; i < count; i += kCodesAtOnce) {
    for (std::size_t j = 0; j < 4; ++j) {
      const auto value = hn::LoadU(d, values + i + j * (kCodesAtOnce / 4));
      const auto quotient = hn::MulAdd(value, hn::Set(d, inverse), hn::Set(d, start));
      shifted[j] = hn::Add(quotient, shift);
      off = hn::Max(off, hn::BitCast(di, hn::Abs(hn::Sub(quotient, hn::Sub(shifted[j], shift)))));
    }
    store_codes_up_to(steps, shifted, codes + i);
  }
  return hn::AllTrue(d, hn::Lt(hn::BitCast(d, off), hn::Set(d, 0.5F - least_gap(steps))));
}

void rtn_groups(const GroupRun& run) {
  const RowFormat& format = run.format;
  const float steps = steps_of(format.bits);
  const bool is_mlx = format.affine == Affine::kScaleBias;
  using Lanes = std::array<float, kWide>;
  alignas(64) Lanes lows{};
  alignas(64) Lanes highs{};
  alignas(64) Lanes scales{};
  alignas(64) Lanes offsets{};
  alignas(64) Lanes inverses{};
  alignas(64) Lanes starts{};
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
    const Shortcut shortcut = shortcut_of(parameters, steps);
    store_wide(parameters.scale, scales.data());
    store_wide(parameters.offset, offsets.data());
    store_wide(shortcut.inverse, inverses.data());
    store_wide(shortcut.start, starts.data());
    for (std::size_t i = 0; i < groups; ++i) {
      const float* const values = run.values + (begin + i) * format.group_size;
      std::uint8_t* const codes = run.codes + (begin + i) * format.group_size;
      prefetch_next(run, begin + i);
      if (!is_mlx) {
        store_group_codes(values, format.group_size, {.inverse = inverses[i], .shift = offsets[i], .steps = steps}, codes);
      } else if (!try_shortcut(values, format.group_size, inverses[i], starts[i], steps, codes)) {
        divide_codes(values, format.group_size, scales[i], offsets[i], steps, codes);
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
