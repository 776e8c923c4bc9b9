// Integers whose zero point is a code, or the middle one: q is scaled by (q - zero) * scale, with scales in the dtype of the
// weights. Round to nearest gives F32 weights the scales and codes of compressed-tensors, bit for bit.

#include "quantize/groups.h"

#include <algorithm>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/whole_zero.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                      // first
#include <hwy/highway.h>

#include "quantize/lanes-inl.h"
#include "quantize/search_starts.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

HWY_INLINE float half_of(unsigned bits) { return static_cast<float>(1U << (bits - 1)); }

HWY_INLINE Wide clamped(const Wide& a, float low, float high) { return smaller(larger(a, all(low)), all(high)); }

// As stored: a scale that would be 0 becomes a small one.
HWY_INLINE Wide stored_scale(const Wide& scale, DType dtype) {
  const Wide stored = snapped(scale, dtype);
  return choose(all(0) < stored, stored, all(least_scale(dtype)));
}

// Round to nearest, from ranges that include 0.
HWY_INLINE Parameters round_parameters(const RowFormat& format, const Wide& low, const Wide& high) {
  const float steps = steps_of(format.bits);
  const float half = half_of(format.bits);
  if (format.affine == Affine::kScaleMiddle) {
    const Wide scale = larger(magnitude(low), magnitude(high)) / all(steps / 2);
    return {.scale = stored_scale(scale, format.parameters), .offset = all(half)};
  }
  const Wide scale = (high - low) / all(steps);
  const Wide zero = rounded(clamped(all(-half) - low / scale, -half, half - 1)) + all(half);
  return {.scale = stored_scale(scale, format.parameters), .offset = choose(all(0) < scale, zero, all(half))};
}

HWY_INLINE void divide_group(const float* values, std::size_t count, float scale, float zero, unsigned bits,
                             std::uint8_t* codes) {
  const CodeLanes d;
  const float half = half_of(bits);
  CodeVector shifted[4];  // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t i = 0; i < count; i += kCodesAtOnce) {
    for (std::size_t j = 0; j < 4; ++j) {
      const auto quotient = hn::Div(hn::LoadU(d, values + i + j * (kCodesAtOnce / 4)), hn::Set(d, scale));
      const auto place = hn::Add(quotient, hn::Set(d, zero - half));
      const auto inside = hn::Min(hn::Max(place, hn::Set(d, -half)), hn::Set(d, half - 1));
      shifted[j] = hn::Add(inside, hn::Set(d, kIntegerShift + half));
    }
    store_codes_up_to(steps_of(bits), shifted, codes + i);
  }
}

void round_whole_zero_groups(const GroupRun& run) {
  const RowFormat& format = run.format;
  using Lanes = std::array<float, kWide>;
  alignas(64) Lanes lows{};
  alignas(64) Lanes highs{};
  for (std::size_t begin = 0; begin < run.groups; begin += kWide) {
    const std::size_t groups = std::min(kWide, run.groups - begin);
    for (std::size_t i = 0; i < groups; ++i) {
      const Range range = range_of(run.values + (begin + i) * format.group_size, format.group_size);
      lows[i] = std::min(range.low, 0.0F);
      highs[i] = std::max(range.high, 0.0F);
    }
    const Parameters parameters = round_parameters(format, load_wide(lows.data()), load_wide(highs.data()));
    alignas(64) Lanes scales;   // NOLINT(cppcoreguidelines-pro-type-member-init)
    alignas(64) Lanes offsets;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    store_wide(parameters.scale, scales.data());
    store_wide(parameters.offset, offsets.data());
    for (std::size_t i = 0; i < groups; ++i) {
      prefetch_next(run, begin + i);
      divide_group(run.values + (begin + i) * format.group_size, format.group_size, scales[i], offsets[i], format.bits,
                   run.codes + (begin + i) * format.group_size);
    }
    std::copy_n(scales.begin(), groups, run.scales + begin);
    std::copy_n(offsets.begin(), groups, run.offsets + begin);
  }
}

// Values of a group, and sixteen candidates for its parameters.
struct Search {
  const float* values;
  const float* importance;  // or null
  std::size_t count;
  float steps;

  HWY_INLINE Wide weight(std::size_t i, const Wide& value) const {
    return importance == nullptr ? value : value * all(importance[i]);
  }
  HWY_INLINE Wide code(std::size_t i, const Wide& inverse, const Wide& zero) const {
    return rounded(clamped(all(values[i]) * inverse + zero, 0, steps));
  }

  // The least-squares scale for each candidate's codes.
  HWY_INLINE Wide refit(const Wide& scale, const Wide& zero) const {
    const Wide inverse = all(1) / scale;
    Wide squares = all(0);
    Wide products = all(0);
    for (std::size_t i = 0; i < count; ++i) {
      const Wide code_from_zero = code(i, inverse, zero) - zero;
      const Wide weighted = weight(i, code_from_zero);
      squares = squares + weighted * code_from_zero;
      products = products + weighted * all(values[i]);
    }
    const Wide fitted = products / squares;
    return choose(is_finite(fitted) & (all(0) < fitted), fitted, scale);
  }

  HWY_INLINE Wide error(const Wide& scale, const Wide& zero) const {
    const Wide inverse = all(1) / scale;
    Wide error = all(0);
    for (std::size_t i = 0; i < count; ++i) {
      const Wide gap = all(values[i]) - (code(i, inverse, zero) - zero) * scale;
      error = error + weight(i, gap) * gap;
    }
    const WideMask usable = is_finite(scale) & is_finite(inverse) & is_finite(error);
    return choose(usable, error, all(std::numeric_limits<float>::max()));
  }
};

// The candidates before they are fitted.
HWY_INLINE Parameters start_of(const RowFormat& format, const SearchStarts& starts, const Wide& low, const Wide& high) {
  const float steps = steps_of(format.bits);
  if (format.affine == Affine::kScaleMiddle) {
    const Wide most = larger(magnitude(low), magnitude(high));
    return {.scale = (most + most) * load_wide(starts.middle.data()), .offset = all(half_of(format.bits))};
  }
  const Wide scale = (high - low) * load_wide(starts.width.data());
  const Wide zero = rounded(clamped(negative(low * load_wide(starts.anchor.data())) / scale, 0, steps));
  return {.scale = scale, .offset = without_sign_of_zero(zero)};
}

HWY_INLINE void search_whole_zero_group(const GroupRun& run, const SearchStarts& starts, std::size_t group) {
  const RowFormat& format = run.format;
  const std::size_t at = group * format.group_size;
  const Search search{.values = run.values + at,
                      .importance = run.importance == nullptr ? nullptr : run.importance + at,
                      .count = format.group_size,
                      .steps = steps_of(format.bits)};
  const Range range = range_of(search.values, search.count);
  const Wide low = all(std::min(range.low, 0.0F));
  const Wide high = all(std::max(range.high, 0.0F));
  const Parameters plain = round_parameters(format, low, high);
  const Parameters start = start_of(format, starts, low, high);
  const WideMask is_plain = load_wide(starts.plain.data()) == all(1);
  const WideMask is_usable = is_finite(start.offset);
  const Wide zero = choose(is_plain, plain.offset, choose(is_usable, start.offset, plain.offset));
  const Wide fitted = search.refit(search.refit(start.scale, zero), zero);
  const Wide scale = choose(is_plain, plain.scale, stored_scale(fitted, format.parameters));
  alignas(64) std::array<float, kWide> errors;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  alignas(64) std::array<float, kWide> scales;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  alignas(64) std::array<float, kWide> zeros;   // NOLINT(cppcoreguidelines-pro-type-member-init)
  store_wide(search.error(scale, zero), errors.data());
  store_wide(scale, scales.data());
  store_wide(zero, zeros.data());
  std::size_t best = kPlainLane;  // unless another is better
  for (std::size_t i = 0; i < kWide; ++i) {
    if (errors[i] < errors[best]) best = i;
  }
  run.scales[group] = scales[best];
  run.offsets[group] = zeros[best];
  store_group_codes(search.values, search.count, {.inverse = 1.0F / scales[best], .shift = zeros[best], .steps = search.steps},
                    run.codes + at);
}

void search_whole_zero_groups(const GroupRun& run) {
  const SearchStarts starts = search_starts(run.format.bits);
  for (std::size_t i = 0; i < run.groups; ++i) search_whole_zero_group(run, starts, i);
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(round_whole_zero_groups);
HWY_EXPORT(search_whole_zero_groups);
void round_whole_zero_groups(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(round_whole_zero_groups)(run); }
void search_whole_zero_groups(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(search_whole_zero_groups)(run); }
}  // namespace ballast
#endif
