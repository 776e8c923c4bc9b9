#pragma once

#include <bit>
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
void store_integers(DType to, std::span<const std::int64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const std::uint64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses);
void store_integers(DType to, std::span<const double> values, std::byte* out, std::uint64_t index, LossCounter& losses);

// Rounds to odd: toward zero, then sets the last bit if that was inexact. To round once more, to nearest and to at least two bits
// less, then gives what rounding the exact number would have given. From 64-bit integers keeps 42 bits or more.
double to_odd_double(std::int64_t value);
double to_odd_double(std::uint64_t value);
float to_odd_float(double value);

// From the highest bit that is set to the lowest.
constexpr int significant_bits(std::uint64_t value) {
  return value == 0 ? 0 : 64 - std::countl_zero(value) - std::countr_zero(value);
}
constexpr int significant_bits(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return significant_bits(value < 0 ? 0 - bits : bits);
}

}  // namespace ballast
