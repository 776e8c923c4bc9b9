// The float types of quantize_by_reference().

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "quantize/groups.h"
#include "quantize/reference.h"

namespace ballast {
namespace {

constexpr std::size_t kLanes = 16;  // in which errors are added up

float e4m3_value(unsigned code) {
  const unsigned exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  const float magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
  return code >= 128 ? -magnitude : magnitude;
}

unsigned largest_code(Element element) { return element == Element::kFloat4 ? 7 : 0x7e; }

// The code of the nearest magnitude. Halfway, the even code, or the lower one.
unsigned nearest_code(Element element, float magnitude, bool halves_to_even) {
  const auto value = [&](unsigned code) { return element_by_reference(element, static_cast<std::uint8_t>(code)); };
  const auto codes = std::views::iota(0U, largest_code(element));
  return *std::ranges::partition_point(codes, [&](unsigned code) {
    const float middle = (value(code) + value(code + 1)) / 2;
    return magnitude > middle || (magnitude == middle && halves_to_even && code % 2 == 1);
  });
}

bool is_power_of_two(const RowFormat& format) { return format.parameters == DType::kF8E8M0; }

float scale_value(const RowFormat& format, int code) {
  return is_power_of_two(format) ? std::ldexp(1.0F, code - 127) : e4m3_value(static_cast<unsigned>(code));
}

int plain_scale(const RowFormat& format, DType weights, float largest) {
  const float most = element_by_reference(format.element, static_cast<std::uint8_t>(largest_code(format.element)));
  float quotient = largest / most;
  if (!is_power_of_two(format)) return static_cast<int>(nearest_code(Element::kFloat8, quotient, true));
  if (weights == DType::kF16) quotient = round_by_reference(quotient, DType::kF16);
  if (quotient == 0) return 127;
  int exponent = 0;
  const float mantissa = std::frexp(quotient, &exponent);
  return std::max(exponent - (mantissa == 0.5F ? 1 : 0) + 127, 0);
}

ReferenceGroup code_with(const RowFormat& format, std::span<const float> values, float stored, std::span<std::uint8_t> codes) {
  const unsigned sign = largest_code(format.element) + (format.element == Element::kFloat4 ? 1 : 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float quotient = stored == 0 ? 0.0F : values[i] / stored;
    const unsigned code = nearest_code(format.element, std::abs(quotient), format.element == Element::kFloat8);
    const bool has_sign = std::signbit(values[i]) && (code != 0 || format.element == Element::kFloat8);
    codes[i] = static_cast<std::uint8_t>(code + (has_sign ? sign : 0));
  }
  return {.scale = stored, .offset = 0};
}

float weight(std::span<const float> importance, std::size_t i) { return importance.empty() ? 1.0F : importance[i]; }

float nearest(Element element, float magnitude) {
  return element_by_reference(element, static_cast<std::uint8_t>(nearest_code(element, magnitude, true)));
}

float error_of_power(const RowFormat& format, std::span<const float> values, std::span<const float> importance, int code,
                     int steps) {
  std::array<float, kLanes> errors{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = std::ldexp(std::abs(values[i]), 127 - code);
    const float gap = std::ldexp(value - nearest(format.element, value), steps);
    errors[i % kLanes] += gap * weight(importance, i) * gap;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) errors[i] += errors[i + half];
  }
  return errors[0];
}

int search_power(const RowFormat& format, std::span<const float> values, std::span<const float> importance, int plain) {
  int best = plain;
  float least = error_of_power(format, values, importance, plain, 0);
  for (const int steps : {-1, -2, 1}) {
    const int code = plain + steps;
    if (code < 0 || code > 253) continue;
    const float error = error_of_power(format, values, importance, code, steps);
    if (!(error < least)) continue;
    least = error;
    best = code;
  }
  return best;
}

int search_e4m3(const RowFormat& format, std::span<const float> values, std::span<const float> importance, int plain) {
  const auto error_of = [&](int code) {
    const float scale = scale_value(format, code);
    const float inverse = scale == 0 ? 0.0F : 1.0F / scale;
    float error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float gap = std::abs(values[i]) - nearest(format.element, std::abs(values[i]) * inverse) * scale;
      error += gap * weight(importance, i) * gap;
    }
    return error;
  };
  int best = plain;
  float least = error_of(plain);
  for (int steps = -7; steps <= 8; ++steps) {
    const int code = std::clamp(plain + steps, 0, 0x7e);
    const float error = error_of(code);
    if (!(error < least)) continue;
    least = error;
    best = code;
  }
  return best;
}

}  // namespace

float element_by_reference(Element element, std::uint8_t code) {
  constexpr std::array<float, 8> kValues{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  if (element == Element::kFloat8) return e4m3_value(code);
  return code >= 8 ? -kValues[code & 7U] : kValues[code];
}

ReferenceGroup quantize_elements_by_reference(QuantizeMethod method, const RowFormat& format, DType weights,
                                              std::span<const float> values, std::span<const float> importance,
                                              std::span<std::uint8_t> codes) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const bool is_rtn = method == QuantizeMethod::kRtn;
  int scale = plain_scale(format, is_rtn ? weights : DType::kF32, largest);
  if (!is_rtn && largest != 0) {
    scale = is_power_of_two(format) ? search_power(format, values, importance, scale)
                                    : search_e4m3(format, values, importance, scale);
  }
  return code_with(format, values, scale_value(format, scale), codes);
}

float band_scale_by_reference(QuantizeMethod method, const RowFormat& format, std::span<const float> values,
                              std::span<const float> importance) {
  constexpr std::array<float, 16> kSteps{1.0F,   1.046875F, 1.09375F, 1.140625F, 1.1875F, 1.234375F, 1.28125F, 1.328125F,
                                         1.375F, 1.4375F,   1.5F,     1.5625F,   1.625F,  1.71875F,  1.8125F,  1.90625F};
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  float best = 0;
  float least = 0;
  for (const float step : kSteps) {
    float scale = round_by_reference(largest / 448 * step, format.parameters);
    if (scale == 0) scale = least_scale(format.parameters);
    float error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = std::abs(values[i]);
      const float gap = value - nearest(Element::kFloat8, value * (1.0F / scale)) * scale;
      error += gap * weight(importance, i) * gap;
    }
    if (step == kSteps.front() || error < least) {
      best = scale;
      least = error;
    }
    if (method == QuantizeMethod::kRtn) break;
  }
  return best;
}

void code_by_reference(const RowFormat& format, std::span<const float> values, float scale, std::span<std::uint8_t> codes) {
  code_with(format, values, scale, codes);
}

}  // namespace ballast
