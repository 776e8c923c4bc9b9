// The zero points that are codes of quantize_by_reference().

#include <algorithm>
#include <cmath>
#include <limits>

#include "convert/reference.h"
#include "quantize/groups.h"
#include "quantize/reference.h"
#include "quantize/search_starts.h"

namespace ballast {
namespace {

struct WholeZeroGroup {
  const RowFormat& format;
  std::span<const float> values;
  std::span<const float> importance;
  float steps;
  float half;

  WholeZeroGroup(const RowFormat& of, std::span<const float> group, std::span<const float> weights)
      : format(of),
        values(group),
        importance(weights),
        steps(static_cast<float>((1U << of.bits) - 1U)),
        half(static_cast<float>(1U << (of.bits - 1))) {}

  bool is_middle() const { return format.affine == Affine::kScaleMiddle; }
  float weight(std::size_t i, float value) const { return importance.empty() ? value : value * importance[i]; }
  float code(std::size_t i, const ReferenceGroup& group) const {
    return std::nearbyint(std::clamp(values[i] * (1.0F / group.scale) + group.offset, 0.0F, steps));
  }

  float stored(float scale) const {
    const float snapped = round_by_reference(scale, format.parameters);
    return snapped > 0 ? snapped : least_scale(format.parameters);
  }

  ReferenceGroup plain(float low, float high) const {
    if (is_middle()) return {.scale = stored(std::max(std::abs(low), std::abs(high)) / (steps / 2)), .offset = half};
    const float scale = (high - low) / steps;
    const float zero = scale > 0 ? std::nearbyint(std::clamp(-half - low / scale, -half, half - 1)) + half : half;
    return {.scale = stored(scale), .offset = zero};
  }

  float refit(const ReferenceGroup& from) const {
    float squares = 0;
    float products = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float from_zero = code(i, from) - from.offset;
      const float weighted = weight(i, from_zero);
      squares += weighted * from_zero;
      products += weighted * values[i];
    }
    const float fitted = products / squares;
    return std::isfinite(fitted) && fitted > 0 ? fitted : from.scale;
  }

  float error(const ReferenceGroup& group) const {
    float error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float gap = values[i] - (code(i, group) - group.offset) * group.scale;
      error += weight(i, gap) * gap;
    }
    const bool is_usable = std::isfinite(group.scale) && std::isfinite(1.0F / group.scale) && std::isfinite(error);
    return is_usable ? error : std::numeric_limits<float>::max();
  }
};

ReferenceGroup search_whole_zero(const WholeZeroGroup& group, float low, float high) {
  const SearchStarts starts = search_starts(group.format.bits);
  const ReferenceGroup plain = group.plain(low, high);
  const float most = std::max(std::abs(low), std::abs(high));
  ReferenceGroup best = plain;
  float least = group.error(plain);
  for (std::size_t i = 0; i < kPlainLane; ++i) {
    ReferenceGroup candidate{.scale = (most + most) * starts.middle[i], .offset = group.half};
    if (!group.is_middle()) {
      candidate.scale = (high - low) * starts.width[i];
      candidate.offset = candidate.scale == 0
                             ? plain.offset
                             : std::nearbyint(std::clamp(-(low * starts.anchor[i]) / candidate.scale, 0.0F, group.steps)) + 0.0F;
    }
    for (int turn = 0; turn < 2; ++turn) candidate.scale = group.refit(candidate);
    candidate.scale = group.stored(candidate.scale);
    const float error = group.error(candidate);
    if (!(error < least)) continue;
    least = error;
    best = candidate;
  }
  return best;
}

}  // namespace

ReferenceGroup quantize_whole_zero_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                                                std::span<const float> importance, std::span<std::uint8_t> codes) {
  const WholeZeroGroup group(format, values, importance);
  const auto [least, most] = std::ranges::minmax(values);
  const float low = std::min(least, 0.0F);
  const float high = std::max(most, 0.0F);
  if (method != QuantizeMethod::kRtn) {
    const ReferenceGroup best = search_whole_zero(group, low, high);
    for (std::size_t i = 0; i < values.size(); ++i) codes[i] = static_cast<std::uint8_t>(group.code(i, best));
    return best;
  }
  const ReferenceGroup plain = group.plain(low, high);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float place = values[i] / plain.scale + (plain.offset - group.half);
    const float code = std::nearbyint(std::clamp(place, -group.half, group.half - 1)) + group.half;
    codes[i] = static_cast<std::uint8_t>(code);
  }
  return plain;
}

}  // namespace ballast
