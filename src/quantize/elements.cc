// Types whose values are floats of 4 or 8 bits. Round to nearest is bit for bit as mlx.core.quantize on a CPU, but for values so
// small or so large that MLX overflows.

#include "quantize/groups.h"

#include <algorithm>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/elements.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                    // first
#include <hwy/highway.h>

#include "quantize/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

HWY_INLINE float largest_of(const float* values, std::size_t count) {
  Wide most = magnitude(load_wide(values));
  for (std::size_t i = kWide; i < count; i += kWide) most = larger(most, magnitude(load_wide(values + i)));
  VectorF all_parts = most.part[0];
  for (std::size_t i = 1; i < kParts; ++i) all_parts = hn::Max(all_parts, most.part[i]);
  return hn::GetLane(hn::MaxOfLanes(LanesF(), all_parts));
}

// The codes of some groups' scales, one a lane.
struct ScaleCodes {
  Vector32 part[kParts];  // NOLINT(modernize-avoid-c-arrays)
};

// The least power of two that is not below the quotient, so that the largest value is not clipped; 1 for a group of zeros. The
// quotient is rounded to the dtype of the weights, which matters for F16 alone: others that are close to 0 are not subnormal.
HWY_INLINE ScaleCodes e8m0_scales(const Wide& largest, float largest_element, DType weights) {
  constexpr int kAway = 64;
  constexpr int kOne = 127;
  const Lanes32 d;
  const WideMask is_small = largest < all(power_of_two(-60));  // moved away from the subnormal numbers
  const Wide moved = choose(is_small, largest * all(power_of_two(kAway)), largest);
  Wide quotient = moved / all(largest_element);
  if (weights == DType::kF16) quotient = snapped(quotient, DType::kF16);
  ScaleCodes out;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto bits = hn::BitCast(d, quotient.part[i]);
    const auto exponent = hn::ShiftRight<23>(hn::Add(bits, hn::Set(d, (1 << 23) - 1)));
    const auto away = hn::BitCast(d, hn::IfThenElseZero(is_small.part[i], as_floats(hn::Set(d, kAway))));
    const auto code = hn::Max(hn::Sub(exponent, away), hn::Zero(d));
    out.part[i] = hn::IfThenElse(hn::Eq(bits, hn::Zero(d)), hn::Set(d, kOne), code);
  }
  return out;
}

// The power of two that compressed-tensors takes.
HWY_INLINE ScaleCodes e8m0_scales_that_clip(const Wide& largest, float largest_element) {
  const Lanes32 d;
  const int offset = largest_element > 6 ? 8 : 2;
  ScaleCodes out;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto exponent = hn::ShiftRight<23>(hn::Add(hn::BitCast(d, largest.part[i]), hn::Set(d, 1 << 21)));
    out.part[i] = hn::Max(hn::Sub(exponent, hn::Set(d, offset)), hn::Zero(d));
  }
  return out;
}

HWY_INLINE ScaleCodes e4m3_scales(const Wide& largest, float divisor) {
  const Wide quotient =
      smaller(largest / all(kLargestElement<Element::kFloat4>) * all(divisor), all(kLargestElement<Element::kFloat8>));
  ScaleCodes out;
  for (std::size_t i = 0; i < kParts; ++i) {
    out.part[i] = encode_f32<DType::kF8E4M3>(Lanes32(), hn::BitCast(Lanes32(), quotient.part[i]));
  }
  return out;
}

// As stored.
template <DType kScales>
HWY_INLINE Wide decode_scales(const ScaleCodes& codes) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = as_floats(decode_f32<kScales>(Lanes32(), codes.part[i]));
  return out;
}

// What values are multiplied by, for powers of two, or divided by. Nothing is left of a group whose scale is 0.
template <DType kScales>
HWY_INLINE Wide units_of(const ScaleCodes& codes, float divisor) {
  if constexpr (kScales == DType::kF8E4M3) {
    const Wide scales = decode_scales<kScales>(codes) / all(divisor);
    return choose(all(0) < scales, scales, all(std::numeric_limits<float>::infinity()));
  } else {
    const Lanes32 d;
    Wide out;
    for (std::size_t i = 0; i < kParts; ++i) {
      out.part[i] = as_floats(hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254), codes.part[i])));
    }
    return out;
  }
}

// A type of float_type().
template <Element kElementOf, DType kScalesOf>
struct Kind {
  static constexpr Element kElement = kElementOf;
  static constexpr DType kScales = kScalesOf;
  static constexpr bool kIsPowerOfTwo = kScales == DType::kF8E8M0;
};

template <class Kind>
HWY_INLINE ScaleCodes scales_by_largest(const RowFormat& format, const Wide& largest, DType weights) {
  constexpr float kMost = kLargestElement<Kind::kElement>;
  if constexpr (!Kind::kIsPowerOfTwo) {
    return e4m3_scales(largest, format.divisor());
  } else if (format.power_rule == PowerRule::kClipsQuarter) {
    return e8m0_scales_that_clip(largest, kMost);
  } else {
    return e8m0_scales(largest, kMost, weights);
  }
}

template <class Kind>
HWY_INLINE void store_elements(const float* values, std::size_t count, float unit, std::uint8_t* codes) {
  const LanesF df;
  const hn::Rebind<std::uint8_t, Lanes32> d8;
  const auto by = hn::Set(df, unit);
  for (std::size_t i = 0; i < count; i += kPart) {
    const auto value = hn::LoadU(df, values + i);
    const auto scaled = Kind::kIsPowerOfTwo ? hn::Mul(value, by) : hn::Div(value, by);
    hn::StoreU(hn::DemoteTo(d8, encode_elements<Kind::kElement>(scaled)), d8, codes + i);
  }
}

// Up to kWide groups.
template <class Kind>
HWY_INLINE void round_some(const GroupRun& run, std::size_t begin, std::size_t groups) {
  const std::size_t size = run.format.group_size;
  alignas(64) std::array<float, kWide> lanes{};
  for (std::size_t i = 0; i < groups; ++i) lanes[i] = largest_of(run.values + (begin + i) * size, size);
  const ScaleCodes codes = scales_by_largest<Kind>(run.format, load_wide(lanes.data()), run.weights);
  store_wide(decode_scales<Kind::kScales>(codes), lanes.data());
  std::copy_n(lanes.begin(), groups, run.scales + begin);
  std::fill_n(run.offsets + begin, groups, 0.0F);
  store_wide(units_of<Kind::kScales>(codes, run.format.divisor()), lanes.data());
  for (std::size_t i = 0; i < groups; ++i) {
    prefetch_next(run, begin + i);
    store_elements<Kind>(run.values + (begin + i) * size, size, lanes[i], run.codes + (begin + i) * size);
  }
}

// The error of a power of two as scale, in units of another that is 2^-steps as large.
template <class Kind>
HWY_INLINE float error_of_power(const float* values, const float* importance, std::size_t count, int code, int steps) {
  const Wide inverse = all(std::bit_cast<float>((254 - code) << 23));
  const Wide unit = all(power_of_two(steps));
  Wide error = all(0);
  for (std::size_t i = 0; i < count; i += kWide) {
    const Wide value = magnitude(load_wide(values + i)) * inverse;
    const Wide gap = (value - nearest_element<Kind::kElement>(value)) * unit;
    error = error + (importance == nullptr ? gap : gap * load_wide(importance + i)) * gap;
  }
  return sum(error);
}

// The best of the scale that clips nothing, two that clip and one above.
template <class Kind>
HWY_INLINE int search_power(const float* values, const float* importance, std::size_t count, int plain) {
  constexpr int kMost = 253;  // whose inverse is not subnormal
  int best = plain;
  float least = error_of_power<Kind>(values, importance, count, plain, 0);
  for (const int steps : {-1, -2, 1}) {
    const int code = plain + steps;
    if (code < 0 || code > kMost) continue;
    const float error = error_of_power<Kind>(values, importance, count, code, steps);
    if (!(error < least)) continue;
    least = error;
    best = code;
  }
  return best;
}

// The best of sixteen E4M3 scales around that of the largest value, one a lane.
template <class Kind>
HWY_INLINE int search_e4m3(const float* values, const float* importance, std::size_t count, int plain, float divisor) {
  constexpr int kPlain = 7;  // its lane
  constexpr int kMost = 0x7e;
  const Lanes32 d;
  ScaleCodes codes;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto code = hn::Iota(d, plain - kPlain + static_cast<int>(i * kPart));
    codes.part[i] = hn::Min(hn::Max(code, hn::Zero(d)), hn::Set(d, kMost));
  }
  const Wide scale = decode_scales<Kind::kScales>(codes) / all(divisor);
  const Wide inverse = choose(all(0) < scale, all(1) / scale, all(0));
  Wide error = all(0);
  for (std::size_t i = 0; i < count; ++i) {
    const Wide value = magnitude(all(values[i]));
    const Wide gap = value - nearest_element<Kind::kElement>(value * inverse) * scale;
    error = error + (importance == nullptr ? gap : gap * all(importance[i])) * gap;
  }
  alignas(64) std::array<float, kWide> errors;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  store_wide(error, errors.data());
  int best = kPlain;
  for (int i = 0; i < static_cast<int>(kWide); ++i) {
    if (errors[static_cast<std::size_t>(i)] < errors[static_cast<std::size_t>(best)]) best = i;
  }
  return std::clamp(plain - kPlain + best, 0, kMost);
}

template <class Kind>
HWY_INLINE void search_some(const GroupRun& run, std::size_t begin, std::size_t groups) {
  const std::size_t size = run.format.group_size;
  alignas(64) std::array<float, kWide> lanes{};
  alignas(64) std::array<std::int32_t, kWide> codes{};
  for (std::size_t i = 0; i < groups; ++i) lanes[i] = largest_of(run.values + (begin + i) * size, size);
  RowFormat format = run.format;
  format.power_rule = PowerRule::kClipsNothing;  // the search begins there
  ScaleCodes scales = scales_by_largest<Kind>(format, load_wide(lanes.data()), DType::kF32);
  for (std::size_t i = 0; i < kParts; ++i) hn::StoreU(scales.part[i], Lanes32(), codes.data() + i * kPart);
  for (std::size_t i = 0; i < groups; ++i) {
    if (lanes[i] == 0) continue;
    const std::size_t at = (begin + i) * size;
    const float* const importance = run.importance == nullptr ? nullptr : run.importance + at;
    codes[i] = Kind::kIsPowerOfTwo ? search_power<Kind>(run.values + at, importance, size, codes[i])
                                   : search_e4m3<Kind>(run.values + at, importance, size, codes[i], run.format.divisor());
  }
  for (std::size_t i = 0; i < kParts; ++i) scales.part[i] = hn::LoadU(Lanes32(), codes.data() + i * kPart);
  store_wide(decode_scales<Kind::kScales>(scales), lanes.data());
  std::copy_n(lanes.begin(), groups, run.scales + begin);
  std::fill_n(run.offsets + begin, groups, 0.0F);
  store_wide(units_of<Kind::kScales>(scales, run.format.divisor()), lanes.data());
  for (std::size_t i = 0; i < groups; ++i) {
    store_elements<Kind>(run.values + (begin + i) * size, size, lanes[i], run.codes + (begin + i) * size);
  }
}

// Calls work(Kind) for the type of the run, whose scales are not floats.
template <class Work>
HWY_INLINE void with_kind(const RowFormat& format, Work&& work) {
  if (format.element == Element::kFloat8) return work(Kind<Element::kFloat8, DType::kF8E8M0>());
  if (format.parameters == DType::kF8E8M0) return work(Kind<Element::kFloat4, DType::kF8E8M0>());
  work(Kind<Element::kFloat4, DType::kF8E4M3>());
}

void round_elements(const GroupRun& run) {
  for (std::size_t begin = 0; begin < run.groups; begin += kWide) {
    const std::size_t groups = std::min(kWide, run.groups - begin);
    with_kind(run.format, [&](auto kind) HWY_ATTR { round_some<decltype(kind)>(run, begin, groups); });
  }
}

using FreeScale = Kind<Element::kFloat8, DType::kF32>;

void raise_largest(const GroupRun& run, float* largest) {
  const std::size_t size = run.format.group_size;
  for (std::size_t i = 0; i < run.groups; ++i) largest[i] = std::max(largest[i], largest_of(run.values + i * size, size));
}

// Halving the largest value gains nothing more: the elements are floats as well.
void scales_to_try(const RowFormat& format, float largest, float* scales) {
  alignas(64) static constexpr std::array<float, kScalesToTry> kSteps{
      1.0F,   1.046875F, 1.09375F, 1.140625F, 1.1875F, 1.234375F, 1.28125F, 1.328125F,
      1.375F, 1.4375F,   1.5F,     1.5625F,   1.625F,  1.71875F,  1.8125F,  1.90625F};
  const Wide plain = all(largest) / all(kLargestElement<Element::kFloat8>);
  const Wide stored = snapped(plain * load_wide(kSteps.data()), format.parameters);
  store_wide(choose(all(0) < stored, stored, all(least_scale(format.parameters))), scales);
}

void add_errors_of_scales(const GroupRun& run, const float* scales, float* errors) {
  const std::size_t size = run.format.group_size;
  for (std::size_t group = 0; group < run.groups; ++group, scales += kScalesToTry, errors += kScalesToTry) {
    const Wide scale = load_wide(scales);
    const Wide inverse = all(1) / scale;
    Wide error = load_wide(errors);
    for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
      const Wide value = magnitude(all(run.values[i]));
      const Wide gap = value - nearest_element<FreeScale::kElement>(value * inverse) * scale;
      error = error + (run.importance == nullptr ? gap : gap * all(run.importance[i])) * gap;
    }
    store_wide(error, errors);
  }
}

void code_elements(const GroupRun& run) {
  const std::size_t size = run.format.group_size;
  std::fill_n(run.offsets, run.groups, 0.0F);
  for (std::size_t i = 0; i < run.groups; ++i) {
    prefetch_next(run, i);
    store_elements<FreeScale>(run.values + i * size, size, run.scales[i], run.codes + i * size);
  }
}

void search_elements(const GroupRun& run) {
  for (std::size_t begin = 0; begin < run.groups; begin += kWide) {
    const std::size_t groups = std::min(kWide, run.groups - begin);
    with_kind(run.format, [&](auto kind) HWY_ATTR { search_some<decltype(kind)>(run, begin, groups); });
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(round_elements);
HWY_EXPORT(search_elements);
HWY_EXPORT(raise_largest);
HWY_EXPORT(scales_to_try);
HWY_EXPORT(add_errors_of_scales);
HWY_EXPORT(code_elements);
void round_elements(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(round_elements)(run); }
void search_elements(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(search_elements)(run); }
void raise_largest(const GroupRun& run, float* largest) { HWY_DYNAMIC_DISPATCH(raise_largest)(run, largest); }
void scales_to_try(const RowFormat& format, float largest, float* scales) {
  HWY_DYNAMIC_DISPATCH(scales_to_try)(format, largest, scales);
}
void add_errors_of_scales(const GroupRun& run, const float* scales, float* errors) {
  HWY_DYNAMIC_DISPATCH(add_errors_of_scales)(run, scales, errors);
}
void code_elements(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(code_elements)(run); }
}  // namespace ballast
#endif
