// The default method: many candidate ranges, each refined by least squares, compared by the error of the stored values.

#include "quantize/groups.h"

#include <algorithm>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/search.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                  // first
#include <hwy/highway.h>

#include "quantize/lanes-inl.h"
#include "quantize/search_starts.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

// Sixteen candidates for the parameters of one group, one per lane, so that every sum runs over the values in order on every
// instruction set.
struct Candidates {
  Wide scale;
  Wide bias;
};

// Values of a group, with the parts of the sums that do not depend on a candidate.
struct Group {
  const float* values;
  const float* importance;
  std::size_t count;
  float importance_sum;
  float weighted_sum;
};

template <bool kWeighted>
HWY_INLINE Group make_group(const float* values, const float* importance, std::size_t count) {
  Group group{.values = values, .importance = importance, .count = count, .importance_sum = 0, .weighted_sum = 0};
  for (std::size_t i = 0; i < count; ++i) {
    const float weight = kWeighted ? importance[i] : 1.0F;
    group.importance_sum += weight;
    group.weighted_sum += kWeighted ? weight * values[i] : values[i];
  }
  return group;
}

HWY_INLINE Wide code_of(float value, const Wide& inverse, const Wide& shift, const Wide& steps) {
  return rounded(smaller(larger(all(value) * inverse + shift, all(0)), steps));
}

// The least-squares scale and bias for each candidate's codes.
template <bool kWeighted>
HWY_INLINE Candidates refit(const Group& group, const Candidates& from, const Wide& steps) {
  const Wide inverse = all(1) / from.scale;
  const Wide shift = negative(from.bias) * inverse;
  Wide codes = all(0);
  Wide squares = all(0);
  Wide products = all(0);
  for (std::size_t i = 0; i < group.count; ++i) {
    const Wide code = code_of(group.values[i], inverse, shift, steps);
    const Wide weighted = kWeighted ? code * all(group.importance[i]) : code;
    codes = codes + weighted;
    squares = squares + weighted * code;
    products = products + weighted * all(group.values[i]);
  }
  const Wide count = all(group.importance_sum);
  const Wide values = all(group.weighted_sum);
  const Wide determinant = count * squares - codes * codes;
  const Candidates fitted{.scale = (count * products - values * codes) / determinant,
                          .bias = (squares * values - codes * products) / determinant};
  const WideMask usable = is_finite(fitted.scale) & is_finite(fitted.bias) & (all(0) < magnitude(fitted.scale));
  return {.scale = choose(usable, fitted.scale, from.scale), .bias = choose(usable, fitted.bias, from.bias)};
}

// The squared error after dequantizing; infinite for unusable parameters.
template <bool kWeighted>
HWY_INLINE Wide error_of(const Group& group, Affine affine, const Wide& scale, const Wide& offset, const Wide& inverse,
                         const Wide& shift, const Wide& steps) {
  Wide error = all(0);
  for (std::size_t i = 0; i < group.count; ++i) {
    const Wide code = code_of(group.values[i], inverse, shift, steps);
    const Wide gap = all(group.values[i]) - value_of(affine, code, scale, offset);
    error = error + (kWeighted ? gap * all(group.importance[i]) : gap) * gap;
  }
  const WideMask usable = is_finite(scale) & is_finite(offset) & is_finite(inverse) & is_finite(shift) & is_finite(error);
  return choose(usable, error, all(std::numeric_limits<float>::max()));
}

std::size_t least(const std::array<float, kWide>& errors) {
  std::size_t best = kPlainLane;  // unless another is better
  for (std::size_t i = 0; i < kWide; ++i) {
    if (errors[i] < errors[best]) best = i;
  }
  return best;
}

template <bool kWeighted>
HWY_INLINE void search_group(const RowFormat& format, const SearchStarts& starts, const float* values, const float* importance,
                             std::uint8_t* codes, float* out_scale, float* out_offset) {
  const float most = steps_of(format.bits);
  const Wide steps = all(most);
  const Range range = range_of(values, format.group_size);
  const Group group = make_group<kWeighted>(values, importance, format.group_size);
  const Wide low = all(range.low);
  const Wide high = all(range.high);

  const Candidates first{.scale = (high - low) * load_wide(starts.width.data()), .bias = low * load_wide(starts.anchor.data())};
  const Candidates fitted = refit<kWeighted>(group, refit<kWeighted>(group, first, steps), steps);

  const bool is_mlx = format.affine == Affine::kScaleBias;
  const Parameters plain = is_mlx ? mlx_parameters(low, high, most) : zero_parameters(low, high, most);
  const WideMask is_plain = load_wide(starts.plain.data()) == all(1);
  const Wide scale = snapped(choose(is_plain, plain.scale, fitted.scale), format.parameters);
  const Wide inverse = all(1) / scale;
  const Wide fitted_offset = is_mlx ? fitted.bias : negative(fitted.bias) * inverse;
  const Wide offset = without_sign_of_zero(snapped(choose(is_plain, plain.offset, fitted_offset), format.parameters));
  const Wide shift = is_mlx ? negative(offset) * inverse : offset;

  alignas(64) std::array<float, kWide> errors;   // NOLINT(cppcoreguidelines-pro-type-member-init)
  alignas(64) std::array<float, kWide> scales;   // NOLINT(cppcoreguidelines-pro-type-member-init)
  alignas(64) std::array<float, kWide> offsets;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  store_wide(error_of<kWeighted>(group, format.affine, scale, offset, inverse, shift, steps), errors.data());
  store_wide(scale, scales.data());
  store_wide(offset, offsets.data());
  const std::size_t best = least(errors);
  *out_scale = scales[best];
  *out_offset = offsets[best];
  const float best_inverse = 1.0F / scales[best];
  store_group_codes(values, format.group_size,
                    {.inverse = best_inverse, .shift = is_mlx ? -offsets[best] * best_inverse : offsets[best], .steps = most},
                    codes);
}

void search_groups(const GroupRun& run) {
  const SearchStarts starts = search_starts(run.format.bits);
  for (std::size_t i = 0; i < run.groups; ++i) {
    const std::size_t at = i * run.format.group_size;
    if (run.importance != nullptr) {
      search_group<true>(run.format, starts, run.values + at, run.importance + at, run.codes + at, run.scales + i,
                         run.offsets + i);
    } else {
      search_group<false>(run.format, starts, run.values + at, nullptr, run.codes + at, run.scales + i, run.offsets + i);
    }
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(search_groups);
void search_groups(const GroupRun& run) { HWY_DYNAMIC_DISPATCH(search_groups)(run); }
}  // namespace ballast
#endif
