#pragma once

#include <cstdint>
#include <optional>

#include <ballast/tensor.h>

namespace ballast {

// Arithmetic on numbers from a file. Returns nothing on overflow.
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Rounded up. `b` is not 0.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The product of all dims, from left to right as in the reference implementation: [2^63, 4, 0] overflows, [0, 2^63, 4] does not.
inline std::optional<std::uint64_t> checked_elements(Shape shape) {
  std::uint64_t product = 1;
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace ballast
