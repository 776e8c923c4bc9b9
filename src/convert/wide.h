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

// Counts losses in the order of the values.
class LossCounter {
 public:
  void add(bool lost, std::uint64_t index) {
    if (lost && loss_.count++ == 0) loss_.first = index;
  }
  ConversionLoss loss() const { return loss_; }

 private:
  ConversionLoss loss_;
};

// Integers, with BOOL among them, from and to 64 bits; U64 passes through std::int64_t as its bits. What does not fit is
// saturated and counted; `index` is that of the first value. Bytes need no alignment.
void load_integers(DType from, const std::byte* in, std::span<std::int64_t> out);
void load_integers(DType from, const std::byte* in, std::span<float> out);  // of at most 16 bits
void store_integers(DType to, std::span<const std::int64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const std::uint64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const double> values, std::byte* out, std::uint64_t index, LossCounter& losses);

// Rounds to odd: toward zero, then sets the last bit if that was inexact. To round once more, to nearest and to at least two bits
// less, then gives what rounding the exact number would have given. From 64-bit integers keeps 42 bits or more.
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

  constexpr int kDropped = 52 - 23;  // of NaN: the top of the payload, as it is
  const auto code = std::bit_cast<std::uint64_t>(value);
  const auto payload = static_cast<std::uint32_t>(code >> kDropped & 0x7fffff) | ((code & ((1U << kDropped) - 1)) != 0 ? 1U : 0U);
  const std::uint32_t nan = static_cast<std::uint32_t>(code >> 63) << 31 | 0x7f800000U | payload;
  return std::bit_cast<float>(value != value ? nan : odd);
}

// From the highest bit that is set to the lowest.
constexpr int significant_bits(std::uint64_t value) {
  return value == 0 ? 0 : 64 - std::countl_zero(value) - std::countr_zero(value);
}
constexpr int significant_bits(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return significant_bits(value < 0 ? 0 - bits : bits);
}

}  // namespace ballast
