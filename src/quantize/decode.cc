// Dequantizes, and compares with the original values.

#include "quantize/groups.h"

#include <algorithm>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/decode.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                  // first
#include <hwy/highway.h>

#include "quantize/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

QualitySums compare_groups(const CodedGroups& coded, const float* values) {
  const std::size_t size = coded.format.group_size;
  Wide weights = all(0);
  Wide cross = all(0);
  Wide error = all(0);
  Wide worst = all(0);
  for (std::size_t group = 0; group < coded.groups; ++group) {
    const Wide scale = all(coded.scales[group]);
    const Wide offset = all(coded.offsets[group]);
    for (std::size_t i = group * size; i < (group + 1) * size; i += kWide) {
      const Wide value = load_wide(values + i);
      const Wide gap = value_of(coded.format.affine, load_codes_wide(coded.codes + i), scale, offset) - value;
      weights = weights + value * value;
      cross = cross + value * gap;
      error = error + gap * gap;
      worst = larger(worst, magnitude(gap));
    }
  }
  alignas(64) std::array<float, kWide> lanes{};
  const auto total = [&lanes](const Wide& all_lanes) HWY_ATTR {
    store_wide(all_lanes, lanes.data());
    double result = 0;
    for (const float lane : lanes) result += static_cast<double>(lane);
    return result;
  };
  QualitySums sums{.count = coded.groups * size, .weights = total(weights), .cross = total(cross), .error = total(error)};
  store_wide(worst, lanes.data());
  sums.max_error = static_cast<double>(*std::ranges::max_element(lanes));
  return sums;
}

void decode_groups(const CodedGroups& coded, float* out) {
  const std::size_t size = coded.format.group_size;
  for (std::size_t group = 0; group < coded.groups; ++group) {
    const Wide scale = all(coded.scales[group]);
    const Wide offset = all(coded.offsets[group]);
    for (std::size_t i = group * size; i < (group + 1) * size; i += kWide) {
      store_wide(value_of(coded.format.affine, load_codes_wide(coded.codes + i), scale, offset), out + i);
    }
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(compare_groups);
HWY_EXPORT(decode_groups);
QualitySums compare_groups(const CodedGroups& coded, const float* values) {
  return HWY_DYNAMIC_DISPATCH(compare_groups)(coded, values);
}
void decode_groups(const CodedGroups& coded, float* out) { HWY_DYNAMIC_DISPATCH(decode_groups)(coded, out); }
}  // namespace ballast
#endif
