#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include <ballast/dtype.h>

namespace ballast::mlx_json {

// The bit layout of an IEEE-like float: sign, exponent, mantissa.
struct FloatLayout {
  int exponent_bits;
  int mantissa_bits;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr std::uint64_t sign() const { return std::uint64_t{1} << (bits() - 1); }
  constexpr std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  constexpr std::uint64_t quiet_nan() const { return infinity() | std::uint64_t{1} << (mantissa_bits - 1); }
  constexpr bool is_finite(std::uint64_t code) const { return (code & ~sign()) < infinity(); }
  constexpr bool is_nan(std::uint64_t code) const { return (code & ~sign()) > infinity(); }
};

inline constexpr FloatLayout kHalf{.exponent_bits = 5, .mantissa_bits = 10};
inline constexpr FloatLayout kBfloat{.exponent_bits = 8, .mantissa_bits = 7};
inline constexpr FloatLayout kSingle{.exponent_bits = 8, .mantissa_bits = 23};
inline constexpr FloatLayout kDouble{.exponent_bits = 11, .mantissa_bits = 52};

// For the dtypes that MLX JSON can store; empty for integers.
constexpr std::optional<FloatLayout> float_layout(DType dtype) {
  switch (dtype) {
    case DType::kF16: return kHalf;
    case DType::kBF16: return kBfloat;
    case DType::kF32: return kSingle;
    case DType::kF64: return kDouble;
    default: return std::nullopt;
  }
}

// Rounds a finite value to the nearest 16-bit float, ties to even. A value that is too large becomes infinity.
template <FloatLayout kLayout>
std::uint16_t narrow(double value) {
  constexpr int kBias = (1 << (kLayout.exponent_bits - 1)) - 1;
  constexpr int kDoubleBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<unsigned>(bits >> 63) << 15;
  const int exponent = std::max(static_cast<int>(bits >> kDouble.mantissa_bits & 0x7ffU) - kDoubleBias, 1 - kBias);
  if (exponent > kBias) return static_cast<std::uint16_t>(sign | kLayout.infinity());

  // Scale so that the last mantissa bit is 1. Adding and subtracting 2^52 then makes the processor round to nearest even.
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(kDoubleBias + kLayout.mantissa_bits - exponent) << 52);
  const double scaled = std::bit_cast<double>(bits & ~kDouble.sign()) * scale;
  const double rounded = (scaled + 0x1p52) - 0x1p52;
  const auto exponent_code = static_cast<unsigned>(exponent - (1 - kBias)) << kLayout.mantissa_bits;
  return static_cast<std::uint16_t>(sign | (exponent_code + static_cast<unsigned>(rounded)));
}

}  // namespace ballast::mlx_json
