// Dequantizes, and compares with the original values.

#include "quantize/groups.h"

#include <algorithm>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/decode.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                  // first
#include <hwy/highway.h>

#include "quantize/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

// What the codes from `i` on stand for.
template <Element kElement>
HWY_INLINE Wide stored_value(const CodedGroups& coded, std::size_t i, const Wide& scale, const Wide& offset) {
  const Wide element = load_elements<kElement>(coded.codes + i);
  return kElement == Element::kInteger ? value_of(coded.format.affine, element, scale, offset) : element * scale;
}

struct GapSums {
  Wide weights;
  Wide cross;
  Wide error;
  Wide worst;

  static HWY_INLINE GapSums zero() { return {.weights = all(0), .cross = all(0), .error = all(0), .worst = all(0)}; }

  HWY_INLINE void add(const Wide& value, const Wide& decoded) {
    const Wide gap = decoded - value;
    weights = weights + value * value;
    cross = cross + value * gap;
    error = error + gap * gap;
    worst = larger(worst, magnitude(gap));
  }

  HWY_INLINE QualitySums total(std::size_t count) const {
    QualitySums sums{.count = count, .weights = sum_of(weights), .cross = sum_of(cross), .error = sum_of(error)};
    alignas(64) std::array<float, kWide> lanes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    store_wide(worst, lanes.data());
    sums.max_error = static_cast<double>(*std::ranges::max_element(lanes));
    return sums;
  }

 private:
  static HWY_INLINE double sum_of(const Wide& wide) {
    alignas(64) std::array<float, kWide> lanes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    store_wide(wide, lanes.data());
    double result = 0;
    for (const float lane : lanes) result += static_cast<double>(lane);
    return result;
  }
};

template <Element kElement>
QualitySums compare_elements(const CodedGroups& coded, const float* values) {
  const std::size_t size = coded.format.group_size;
  const float divisor = coded.format.divisor();
  GapSums sums = GapSums::zero();
  for (std::size_t group = 0; group < coded.groups; ++group) {
    const Wide scale = all(coded.scales[group] / divisor);
    const Wide offset = all(coded.offsets[group]);
    for (std::size_t i = group * size; i < (group + 1) * size; i += kWide) {
      sums.add(load_wide(values + i), stored_value<kElement>(coded, i, scale, offset));
    }
  }
  return sums.total(coded.groups * size);
}

QualitySums compare_values(const float* decoded, const float* values, std::size_t count) {
  GapSums sums = GapSums::zero();
  for (std::size_t i = 0; i < count; i += kWide) sums.add(load_wide(values + i), load_wide(decoded + i));
  return sums.total(count);
}

template <Element kElement>
void decode_all(const CodedGroups& coded, float* out) {
  const std::size_t size = coded.format.group_size;
  const float divisor = coded.format.divisor();
  for (std::size_t group = 0; group < coded.groups; ++group) {
    const Wide scale = all(coded.scales[group] / divisor);
    const Wide offset = all(coded.offsets[group]);
    for (std::size_t i = group * size; i < (group + 1) * size; i += kWide) {
      store_wide(stored_value<kElement>(coded, i, scale, offset), out + i);
    }
  }
}

QualitySums compare_groups(const CodedGroups& coded, const float* values) {
  switch (coded.format.element) {
    case Element::kInteger: break;
    case Element::kFloat4: return compare_elements<Element::kFloat4>(coded, values);
    case Element::kFloat8: return compare_elements<Element::kFloat8>(coded, values);
  }
  return compare_elements<Element::kInteger>(coded, values);
}

void decode_groups(const CodedGroups& coded, float* out) {
  switch (coded.format.element) {
    case Element::kInteger: return decode_all<Element::kInteger>(coded, out);
    case Element::kFloat4: return decode_all<Element::kFloat4>(coded, out);
    case Element::kFloat8: return decode_all<Element::kFloat8>(coded, out);
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(compare_groups);
HWY_EXPORT(compare_values);
HWY_EXPORT(decode_groups);
QualitySums compare_groups(const CodedGroups& coded, const float* values) {
  return HWY_DYNAMIC_DISPATCH(compare_groups)(coded, values);
}
QualitySums compare_values(const float* decoded, const float* values, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(compare_values)(decoded, values, count);
}
void decode_groups(const CodedGroups& coded, float* out) { HWY_DYNAMIC_DISPATCH(decode_groups)(coded, out); }
}  // namespace ballast
#endif
