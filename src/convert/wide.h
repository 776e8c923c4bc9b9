#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <ballast/convert.h>
#include <ballast/dtype.h>

namespace ballast {

constexpr bool is_integer(DType dtype) {
  return info(dtype).kind != NumberKind::kFloat && info(dtype).kind != NumberKind::kComplex;
}

// Counts losses. Values must be added in order.
class LossCounter {
 public:
  void add(bool lost, std::uint64_t index) {
    if (lost && loss_.count++ == 0) loss_.first = index;
  }
  ConversionLoss loss() const { return loss_; }

 private:
  ConversionLoss loss_;
};

// Convert integers and BOOL to and from 64 bits; a U64 is passed as the std::int64_t with the same bits. A value that does not
// fit is saturated and counted as a loss; `index` is the index of the first value. Bytes need no alignment.
void load_integers(DType from, const std::byte* in, std::span<std::int64_t> out);
void load_integers(DType from, const std::byte* in, std::span<float> out);  // `from` has at most 16 bits
void store_integers(DType to, std::span<const std::int64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const std::uint64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const double> values, std::byte* out, std::uint64_t index, LossCounter& losses);

// Round to odd: toward zero, then set the last bit if the result is inexact. Rounding the result again, to nearest with at least
// two bits fewer, gives the same as rounding the exact number once. At least 42 bits of a 64-bit integer are kept.
inline double to_odd_double(std::uint64_t value) {
  constexpr std::uint64_t kDropped = (1U << 11) - 1;
  const std::uint64_t odd = (value | ((value & kDropped) != 0 ? kDropped + 1 : 0)) & ~kDropped;
  return static_cast<double>(value >> 53 == 0 ? value : odd);
}

inline double to_odd_double(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  const double magnitude = to_odd_double(value < 0 ? 0 - bits : bits);
  return value < 0 ? -magnitude : magnitude;
}

inline float to_odd_float(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool inexact_and_even = back != value && (bits & 1) == 0;
  const std::uint32_t step = std::abs(back) < std::abs(value) ? 1 : UINT32_MAX;
  const std::uint32_t odd = bits + (inexact_and_even ? step : 0);

  constexpr int kDropped = 52 - 23;  // for NaN: keep the top bits of the payload
  const auto code = std::bit_cast<std::uint64_t>(value);
  const auto payload = static_cast<std::uint32_t>(code >> kDropped & 0x7fffff) | ((code & ((1U << kDropped) - 1)) != 0 ? 1U : 0U);
  const std::uint32_t nan = static_cast<std::uint32_t>(code >> 63) << 31 | 0x7f800000U | payload;
  return std::bit_cast<float>(value != value ? nan : odd);
}

// The number of bits from the highest to the lowest set bit.
constexpr int significant_bits(std::uint64_t value) {
  return value == 0 ? 0 : 64 - std::countl_zero(value) - std::countr_zero(value);
}
constexpr int significant_bits(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return significant_bits(value < 0 ? 0 - bits : bits);
}

}  // namespace ballast
