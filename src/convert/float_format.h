#pragma once

#include <cstdint>
#include <optional>

#include <ballast/dtype.h>

namespace ballast {

// A binary float format: sign, exponent and mantissa from the top bit down.
struct FloatFormat {
  enum class Specials : std::uint8_t {
    kIeee,               // the top exponent holds infinity and NaN
    kTopCodeIsNan,       // all ones is NaN; there is no infinity
    kNegativeZeroIsNan,  // negative zero is the only NaN; there is no infinity
    kNone,               // every code is a number
  };

  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;

  constexpr std::uint64_t sign_bit() const { return std::uint64_t{1} << (exponent_bits + mantissa_bits); }
  constexpr std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }

  // The code for infinity and for magnitudes above the largest number. Unless `specials` is kNone, it and all codes above it are
  // infinity or NaN.
  constexpr std::uint64_t overflow() const {
    switch (specials) {
      case Specials::kIeee: return infinity();
      case Specials::kTopCodeIsNan: return sign_bit() - 1;
      case Specials::kNegativeZeroIsNan: return sign_bit();
      case Specials::kNone: return sign_bit() - 1;  // the largest number
    }
    return 0;
  }
};

// Empty for integers, for F8_E8M0, which has no sign, and for F6, which has no standard packing.
constexpr std::optional<FloatFormat> float_format(DType dtype) {
  using enum DType;
  using enum FloatFormat::Specials;
  switch (dtype) {
    case kF4: return FloatFormat{.exponent_bits = 2, .mantissa_bits = 1, .bias = 1, .specials = kNone};
    case kF8E5M2: return FloatFormat{.exponent_bits = 5, .mantissa_bits = 2, .bias = 15, .specials = kIeee};
    case kF8E4M3: return FloatFormat{.exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .specials = kTopCodeIsNan};
    case kF8E4M3Fnuz: return FloatFormat{.exponent_bits = 4, .mantissa_bits = 3, .bias = 8, .specials = kNegativeZeroIsNan};
    case kF8E5M2Fnuz: return FloatFormat{.exponent_bits = 5, .mantissa_bits = 2, .bias = 16, .specials = kNegativeZeroIsNan};
    case kF16: return FloatFormat{.exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .specials = kIeee};
    case kBF16: return FloatFormat{.exponent_bits = 8, .mantissa_bits = 7, .bias = 127, .specials = kIeee};
    case kF32: return FloatFormat{.exponent_bits = 8, .mantissa_bits = 23, .bias = 127, .specials = kIeee};
    case kF64: return FloatFormat{.exponent_bits = 11, .mantissa_bits = 52, .bias = 1023, .specials = kIeee};
    default: return std::nullopt;
  }
}

}  // namespace ballast
