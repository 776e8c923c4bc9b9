#include "quantize/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "convert/reference.h"
#include "quantize/search_starts.h"

namespace ballast {
namespace {

constexpr std::size_t kLanes = 16;  // in which the schemes add up values

// A zero has no sign.
float snap(float value, DType dtype) { return round_by_reference(value, dtype) + 0.0F; }

float steps_of(const RowFormat& format) { return static_cast<float>((1U << format.bits) - 1U); }

ReferenceGroup mlx_parameters(float low, float high, float steps) {
  const bool low_is_further = std::abs(low) > std::abs(high);
  const float width = std::max((high - low) / steps, 1e-7F);
  const float scale = low_is_further ? width : -width;
  const float edge = low_is_further ? low : high;
  const float code = std::nearbyint(edge / scale);
  if (code == 0) return {.scale = scale, .offset = 0};
  return {.scale = edge / code, .offset = edge};
}

ReferenceGroup zero_parameters(float low, float high, float steps) {
  if (low == high && std::abs(low) > 1e-7F) return {.scale = snap(low, DType::kBF16), .offset = 0};
  const ReferenceGroup mlx = mlx_parameters(std::min(low, 0.0F), std::max(high, 0.0F), steps);
  return {.scale = snap(mlx.scale, DType::kBF16), .offset = snap(std::nearbyint(-mlx.offset / mlx.scale), DType::kBF16)};
}

ReferenceGroup plain_parameters(const RowFormat& format, std::span<const float> values) {
  const auto [low, high] = std::ranges::minmax(values);
  return format.affine == Affine::kScaleBias ? mlx_parameters(low, high, steps_of(format))
                                             : zero_parameters(low, high, steps_of(format));
}

float code_of(float value, float inverse, float shift, float steps) {
  return std::nearbyint(std::clamp(value * inverse + shift, 0.0F, steps));
}

// Stores the codes that rounded parameters give.
ReferenceGroup code_group(const RowFormat& format, std::span<const float> values, ReferenceGroup stored,
                          std::span<std::uint8_t> codes) {
  const float inverse = 1.0F / stored.scale;
  const float shift = format.affine == Affine::kScaleBias ? -stored.offset * inverse : stored.offset;
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(code_of(values[i], inverse, shift, steps_of(format)));
  }
  return stored;
}

ReferenceGroup snap(const RowFormat& format, ReferenceGroup group) {
  return {.scale = snap(group.scale, format.parameters), .offset = snap(group.offset, format.parameters)};
}

ReferenceGroup rtn(const RowFormat& format, std::span<const float> values, std::span<std::uint8_t> codes) {
  const ReferenceGroup plain = plain_parameters(format, values);
  if (format.affine == Affine::kScaleZero) return code_group(format, values, plain, codes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float quotient = std::nearbyint((values[i] - plain.offset) / plain.scale);
    codes[i] = static_cast<std::uint8_t>(std::clamp(quotient, 0.0F, steps_of(format)));
  }
  return snap(format, plain);
}

float weight(std::span<const float> importance, std::size_t i) { return importance.empty() ? 1.0F : importance[i]; }

ReferenceGroup refit(const RowFormat& format, std::span<const float> values, std::span<const float> importance,
                     ReferenceGroup from) {
  float count = 0;
  float sum = 0;
  float codes = 0;
  float squares = 0;
  float products = 0;
  const float inverse = 1.0F / from.scale;
  const float shift = -from.offset * inverse;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float code = code_of(values[i], inverse, shift, steps_of(format));
    const float weighted = code * weight(importance, i);
    count += weight(importance, i);
    sum += weight(importance, i) * values[i];
    codes += weighted;
    squares += weighted * code;
    products += weighted * values[i];
  }
  const float determinant = count * squares - codes * codes;
  const ReferenceGroup fitted{.scale = (count * products - sum * codes) / determinant,
                              .offset = (squares * sum - codes * products) / determinant};
  const bool usable = std::isfinite(fitted.scale) && std::isfinite(fitted.offset) && fitted.scale != 0;
  return usable ? fitted : from;
}

float error_of(const RowFormat& format, std::span<const float> values, std::span<const float> importance, ReferenceGroup stored) {
  const bool is_mlx = format.affine == Affine::kScaleBias;
  const float inverse = 1.0F / stored.scale;
  const float shift = is_mlx ? -stored.offset * inverse : stored.offset;
  float error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float code = code_of(values[i], inverse, shift, steps_of(format));
    const float value = is_mlx ? code * stored.scale + stored.offset : (code - stored.offset) * stored.scale;
    const float gap = values[i] - value;
    error += gap * weight(importance, i) * gap;
  }
  const bool usable = std::isfinite(stored.scale) && std::isfinite(stored.offset) && std::isfinite(inverse) &&
                      std::isfinite(shift) && std::isfinite(error);
  return usable ? error : std::numeric_limits<float>::max();
}

ReferenceGroup search(const RowFormat& format, std::span<const float> values, std::span<const float> importance,
                      std::span<std::uint8_t> codes) {
  const bool is_mlx = format.affine == Affine::kScaleBias;
  const auto [low, high] = std::ranges::minmax(values);
  const SearchStarts starts = search_starts(format.bits);
  ReferenceGroup best = snap(format, plain_parameters(format, values));
  float least = error_of(format, values, importance, best);
  for (std::size_t i = 0; i < kPlainLane; ++i) {
    ReferenceGroup fitted{.scale = (high - low) * starts.width[i], .offset = low * starts.anchor[i]};
    for (int turn = 0; turn < 2; ++turn) fitted = refit(format, values, importance, fitted);
    ReferenceGroup stored{.scale = snap(fitted.scale, format.parameters), .offset = fitted.offset};
    if (!is_mlx) stored.offset = -fitted.offset * (1.0F / stored.scale);
    stored.offset = snap(stored.offset, format.parameters);
    const float error = error_of(format, values, importance, stored);
    if (error < least) {
      least = error;
      best = stored;
    }
  }
  return code_group(format, values, best, codes);
}

float sum_lanes(std::array<float, kLanes> lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float find_zero(const RowFormat& format, std::span<const float> values, std::span<const float> importance, float scale,
                float zero) {
  float count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) count += weight(importance, i);
  if (!(count > 0)) return zero;
  const float inverse = 1.0F / scale;
  float beta = 10;
  float best_zero = zero;
  float best_error = std::numeric_limits<float>::max();
  for (int step = 0; step <= 20; ++step, beta *= 1.01F) {
    std::array<float, kLanes> errors{};
    std::array<float, kLanes> zeros{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float code = code_of(values[i], inverse, zero, steps_of(format));
      const float error = values[i] - (code - zero) * scale;
      const float root = std::max(std::sqrt(std::sqrt(std::abs(error))), 1e-9F);
      const float outlier = std::copysign(std::max(std::abs(error) - (1.0F / beta) / root, 0.0F), error);
      zeros[i % kLanes] += (code - (values[i] - outlier) * inverse) * weight(importance, i);
      errors[i % kLanes] += std::abs(error) * weight(importance, i);
    }
    const float error = sum_lanes(errors);
    if (!(error < best_error)) break;
    best_error = error;
    best_zero = zero;
    zero = sum_lanes(zeros) / count;
  }
  return best_zero;
}

ReferenceGroup hqq(const RowFormat& format, std::span<const float> values, std::span<const float> importance,
                   std::span<std::uint8_t> codes) {
  const auto [low, high] = std::ranges::minmax(values);
  const float width = (high - low) / steps_of(format);
  ReferenceGroup parameters = plain_parameters(format, values);
  if (width > 1e-7F) {
    const float zero = find_zero(format, values, importance, width, -low / width);
    parameters = {.scale = width, .offset = format.affine == Affine::kScaleBias ? -zero * width : zero};
  }
  return code_group(format, values, snap(format, parameters), codes);
}

}  // namespace

float round_by_reference(float value, DType dtype) {
  std::array<std::byte, 4> code{};
  float out = 0;
  const std::span stored = std::span(code).first(bits(dtype) / 8);
  convert_by_reference(DType::kF32, std::as_bytes(std::span(&value, 1)), dtype, stored);
  convert_by_reference(dtype, stored, DType::kF32, std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

ReferenceGroup quantize_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                                     std::span<const float> importance, std::span<std::uint8_t> codes) {
  if (has_whole_zero(format.affine)) return quantize_whole_zero_by_reference(method, format, values, importance, codes);
  switch (method) {
    case QuantizeMethod::kRtn: return rtn(format, values, codes);
    case QuantizeMethod::kSearch:
    case QuantizeMethod::kAuto: return search(format, values, importance, codes);
    case QuantizeMethod::kHqq: return hqq(format, values, importance, codes);
  }
  return {};
}

}  // namespace ballast
