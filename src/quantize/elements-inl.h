// Floats of 4 and 8 bits in lanes. Included once for each instruction set, hence the odd guard.

#if defined(BALLAST_QUANTIZE_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_QUANTIZE_ELEMENTS_INL_H
#undef BALLAST_QUANTIZE_ELEMENTS_INL_H
#else
#define BALLAST_QUANTIZE_ELEMENTS_INL_H
#endif

#include "quantize/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {

template <Element kElement>
constexpr float kLargestElement = kElement == Element::kFloat4 ? 6 : 448;

// The values of codes.
template <Element kElement>
HWY_INLINE VectorF decode_elements(Vector32 codes) {
  const Lanes32 d;
  const LanesF df;
  if constexpr (kElement == Element::kInteger) {
    return hn::ConvertTo(df, codes);
  } else if constexpr (kElement == Element::kFloat8) {
    return as_floats(decode_f32<DType::kF8E4M3>(d, codes));
  } else {
    // Three lines through the values: from 0 in steps of a half, from 2 in steps of 1, from 4 in steps of 2.
    const auto code = hn::ConvertTo(df, hn::And(codes, hn::Set(d, 7)));
    const auto half = hn::Mul(code, hn::Set(df, 0.5F));
    const auto twice = hn::Sub(hn::Add(code, code), hn::Set(df, 8));
    const auto value = hn::Max(half, hn::Max(hn::Sub(code, hn::Set(df, 2)), twice));
    return hn::Or(value, as_floats(hn::ShiftLeft<28>(hn::And(codes, hn::Set(d, 8)))));
  }
}

template <Element kElement>
HWY_INLINE Wide load_elements(const std::uint8_t* codes) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) {
    out.part[i] = decode_elements<kElement>(load_codes<8>(Lanes32(), codes + i * kPart));
  }
  return out;
}

// The code nearest to a value; halfway, E2M1 takes the smaller magnitude and E4M3 the even one, as MLX does. In E2M1, 0 has no
// sign.
template <Element kElement>
HWY_INLINE Vector32 encode_elements(VectorF value) {
  const Lanes32 d;
  const LanesF df;
  if constexpr (kElement == Element::kFloat8) {
    const auto most = hn::Set(df, kLargestElement<kElement>);
    return encode_f32<DType::kF8E4M3>(d, hn::BitCast(d, hn::Min(hn::Max(value, hn::Neg(most)), most)));
  } else {
    // From 1 on, the exponent and one bit of the mantissa are the code, less 252, after adding almost half of that bit.
    constexpr int kHalf = (1 << 21) - 1;
    const auto magnitude = hn::Abs(value);
    const auto large = hn::ShiftRight<22>(hn::Add(hn::BitCast(d, magnitude), hn::Set(d, kHalf - (252 << 22))));
    const auto is_half = hn::BitCast(d, hn::VecFromMask(df, hn::Gt(magnitude, hn::Set(df, 0.25F))));
    const auto is_one = hn::BitCast(d, hn::VecFromMask(df, hn::Gt(magnitude, hn::Set(df, 0.75F))));
    const auto small = hn::Neg(hn::Add(is_half, is_one));  // a true mask is -1
    const auto code = hn::Min(hn::Max(large, small), hn::Set(d, 7));
    const auto sign = hn::And(shift_right_logical<28>(d, hn::BitCast(d, value)), hn::Set(d, 8));
    return hn::IfThenElseZero(hn::Gt(code, hn::Zero(d)), hn::Or(code, sign));
  }
}

// Magnitudes rounded to the nearest value of an element, ties to even.
template <Element kElement>
HWY_INLINE Wide nearest_element(const Wide& magnitudes) {
  constexpr float kShift = 12582912.0F;  // adding it rounds to an integer
  const Wide value = smaller(magnitudes, all(kLargestElement<kElement>));
  Wide shift;
  if constexpr (kElement == Element::kFloat4) {
    shift = choose(value < all(2), all(kShift / 2), choose(value < all(4), all(kShift), all(kShift * 2)));
  } else {
    const LanesF df;
    const Lanes32 d;
    const auto smallest = hn::Set(df, power_of_two(-6));
    for (std::size_t i = 0; i < kParts; ++i) {
      const auto power = as_floats(hn::And(hn::BitCast(d, value.part[i]), hn::Set(d, kInfinity)));
      shift.part[i] = hn::Mul(hn::Max(power, smallest), hn::Set(df, kShift / 8));
    }
  }
  return (value + shift) - shift;
}

}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
