// Operations on one vector of 32-bit lanes. Included once per instruction set, hence the unusual include guard.

#if defined(BALLAST_CONVERT_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_CONVERT_KERNELS_INL_H
#undef BALLAST_CONVERT_KERNELS_INL_H
#else
#define BALLAST_CONVERT_KERNELS_INL_H
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "convert/float_format.h"
#include "convert/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kBlock = 64;  // values; as bytes they fill a cache line and the widest vector used here

using Lanes32 = hn::CappedTag<std::int32_t, kBlock / 4>;
using Vector32 = hn::VFromD<Lanes32>;

HWY_INLINE Vector32 load(Lanes32 d, const std::uint8_t* bytes) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, Lanes32>(), bytes));
}

template <Stores kStores>
HWY_INLINE void store(Lanes32 d, Vector32 values, std::uint8_t* bytes) {
  if constexpr (kStores == Stores::kStreaming) {
    hn::Stream(values, d, reinterpret_cast<std::int32_t*>(bytes));
  } else {
    const hn::Repartition<std::uint8_t, Lanes32> d8;
    hn::StoreU(hn::BitCast(d8, values), d8, bytes);
  }
}

// Loads one code of 8 or 16 bits into each lane.
template <std::size_t kBits>
HWY_INLINE Vector32 load_codes(Lanes32 d, const std::uint8_t* bytes) {
  if constexpr (kBits == 8) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, Lanes32>(), bytes));
  } else {
    const hn::Rebind<std::uint16_t, Lanes32> d16;
    return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(hn::Repartition<std::uint8_t, decltype(d16)>(), bytes)));
  }
}

// Packs the low 16 bits of every lane, `low` first.
HWY_INLINE Vector32 pack16(Lanes32 d, Vector32 low, Vector32 high) {
  const hn::Repartition<std::uint16_t, Lanes32> d16;
  return hn::BitCast(d, hn::ConcatEven(d16, hn::BitCast(d16, high), hn::BitCast(d16, low)));
}

// Packs the low 8 bits of every 16, `low` first.
HWY_INLINE Vector32 pack8(Lanes32 d, Vector32 low, Vector32 high) {
  const hn::Repartition<std::uint8_t, Lanes32> d8;
  return hn::BitCast(d, hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low)));
}

// unpack_nibbles() and pack_nibbles() convert a block of F4 values between two per byte, low nibble first, and one per byte.
HWY_INLINE void unpack_nibbles(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT codes) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::Repartition<std::uint16_t, decltype(d)> d16;
  for (std::size_t i = 0; i < kBlock / 2; i += 16) {
    const auto bytes = hn::LoadU(d, in + i);
    const auto low = hn::And(bytes, hn::Set(d, 0xf));
    const auto high = hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, bytes))), hn::Set(d, 0xf));
    hn::StoreU(hn::InterleaveLower(d, low, high), d, codes + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, codes + 2 * i + 16);
  }
}

HWY_INLINE void pack_nibbles(const std::uint8_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT out) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::Repartition<std::uint16_t, decltype(d)> d16;
  const auto join = [&](const std::uint8_t* pairs) HWY_ATTR {
    const auto pair = hn::BitCast(d16, hn::LoadU(d, pairs));
    return hn::BitCast(d, hn::Or(pair, hn::ShiftRight<4>(pair)));
  };
  for (std::size_t i = 0; i < kBlock / 2; i += 16) {
    hn::StoreU(hn::ConcatEven(d, join(codes + 2 * i + 16), join(codes + 2 * i)), d, out + i);
  }
}

constexpr int kSignBit = INT32_MIN;
constexpr int kInfinity = 0x7f800000;
constexpr int kQuietNan = 0x7fc00000;

constexpr float power_of_two(int exponent) { return std::bit_cast<float>((exponent + 127) << 23); }

template <int kBits>
HWY_INLINE Vector32 shift_right_logical(Lanes32 d, Vector32 v) {
  return hn::BitCast(d, hn::ShiftRight<kBits>(hn::BitCast(hn::RebindToUnsigned<Lanes32>(), v)));
}

// Converts a code to the bits of the equal F32. No intermediate result is a subnormal F32, because the processor may be set to
// flush those to zero.
template <DType kFrom>
HWY_INLINE Vector32 decode_f32(Lanes32 d, Vector32 code) {
  const auto set = [d](int value) HWY_ATTR { return hn::Set(d, value); };
  if constexpr (kFrom == DType::kBF16) {
    return hn::ShiftLeft<16>(code);
  } else if constexpr (kFrom == DType::kF8E8M0) {  // 2^-127 is the only one that is a subnormal F32
    const auto number = hn::Max(hn::ShiftLeft<23>(code), set(0x00400000));
    return hn::IfThenElse(hn::Eq(code, set(0xff)), set(kQuietNan), number);
  } else {
    constexpr FloatFormat kFormat = *float_format(kFrom);
    constexpr int kMantissa = kFormat.mantissa_bits;
    constexpr int kMagnitude = static_cast<int>(kFormat.sign_bit() - 1);
    const auto magnitude = hn::And(code, set(kMagnitude));
    const auto sign = hn::ShiftLeft<31 - kFormat.exponent_bits - kMantissa>(hn::AndNot(set(kMagnitude), code));

    const hn::RebindToFloat<Lanes32> df;
    const auto normal = hn::Add(hn::ShiftLeft<23 - kMantissa>(magnitude), set((127 - kFormat.bias) << 23));
    const auto subnormal = hn::Mul(hn::ConvertTo(df, magnitude), hn::Set(df, power_of_two(1 - kFormat.bias - kMantissa)));
    auto result = hn::IfThenElse(hn::Lt(magnitude, set(1 << kMantissa)), hn::BitCast(d, subnormal), normal);

    constexpr int kOverflow = static_cast<int>(kFormat.overflow());
    if constexpr (kFormat.specials == FloatFormat::Specials::kIeee) {
      result = hn::IfThenElse(hn::Lt(magnitude, set(kOverflow)), result, hn::Or(result, set(kInfinity)));
      if constexpr (kFrom == DType::kF8E5M2) result = hn::IfThenElse(hn::Gt(magnitude, set(kOverflow)), set(kQuietNan), result);
    } else if constexpr (kFormat.specials == FloatFormat::Specials::kTopCodeIsNan) {
      result = hn::IfThenElse(hn::Eq(magnitude, set(kOverflow)), set(kQuietNan), result);
    } else if constexpr (kFormat.specials == FloatFormat::Specials::kNegativeZeroIsNan) {
      result = hn::IfThenElse(hn::Eq(code, set(kOverflow)), set(kQuietNan), result);
    }
    return hn::Or(result, sign);
  }
}

HWY_INLINE Vector32 encode_bf16(Lanes32 d, Vector32 x) {
  const auto set = [d](int value) HWY_ATTR { return hn::Set(d, value); };
  const auto top = shift_right_logical<16>(d, x);
  const auto rounded = shift_right_logical<16>(d, hn::Add(x, hn::Add(hn::And(top, set(1)), set(0x7fff))));
  const auto nan = hn::Or(hn::And(top, set(0x8000)), set(0x7fc0));
  return hn::IfThenElse(hn::Gt(hn::And(x, set(~kSignBit)), set(kInfinity)), nan, rounded);
}

// Rounds to the nearest power of two, ties to the larger.
HWY_INLINE Vector32 encode_e8m0(Lanes32 d, Vector32 x) {
  const auto set = [d](int value) HWY_ATTR { return hn::Set(d, value); };
  const auto normal = shift_right_logical<23>(d, hn::Add(x, set(0x00400000)));
  const auto subnormal = hn::IfThenElse(hn::Lt(x, set(0x00600000)), set(0), set(1));
  const auto number = hn::IfThenElse(hn::Lt(x, set(0x00800000)), subnormal, normal);
  return hn::IfThenElse(hn::And(hn::Gt(x, set(0)), hn::Lt(x, set(kInfinity))), number, set(0xff));
}

// Converts the bits of an F32 to the nearest code, ties to even.
template <DType kTo>
HWY_INLINE Vector32 encode_f32(Lanes32 d, Vector32 x) {
  const auto set = [d](int value) HWY_ATTR { return hn::Set(d, value); };
  if constexpr (kTo == DType::kBF16) {
    return encode_bf16(d, x);
  } else if constexpr (kTo == DType::kF8E8M0) {
    return encode_e8m0(d, x);
  } else {
    constexpr FloatFormat kFormat = *float_format(kTo);
    constexpr int kMantissa = kFormat.mantissa_bits;
    constexpr int kDropped = 23 - kMantissa;
    const auto bits = hn::And(x, set(~kSignBit));
    const auto magnitude = hn::Min(bits, set(kInfinity));  // NaN overflows like infinity and is handled below
    const auto odd = hn::And(hn::ShiftRight<kDropped>(magnitude), set(1));
    const auto rounded = hn::ShiftRight<kDropped>(hn::Add(magnitude, hn::Add(odd, set((1 << (kDropped - 1)) - 1))));
    const auto normal = hn::Sub(rounded, set((127 - kFormat.bias) << kMantissa));

    // Adding 2^23 times the smallest number makes the processor round to a multiple of that number.
    const hn::RebindToFloat<Lanes32> df;
    constexpr float kShift = power_of_two(23 + 1 - kFormat.bias - kMantissa);
    const auto shifted = hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, kShift)));
    const auto subnormal = hn::Sub(shifted, set(std::bit_cast<int>(kShift)));
    constexpr int kSmallestNormal = (127 - kFormat.bias + 1) << 23;
    auto code = hn::IfThenElse(hn::Lt(magnitude, set(kSmallestNormal)), subnormal, normal);
    code = hn::Min(code, set(static_cast<int>(kFormat.overflow())));

    auto sign = shift_right_logical<31 - kFormat.exponent_bits - kMantissa>(d, hn::AndNot(set(~kSignBit), x));
    const auto is_nan = hn::Gt(bits, set(kInfinity));
    if constexpr (kTo == DType::kF16) {
      const auto payload = hn::ShiftRight<kDropped>(hn::And(bits, set((1 << 23) - 1)));
      code = hn::IfThenElse(is_nan, hn::Add(set(0x7c00), hn::Max(payload, set(1))), code);
    } else if constexpr (kTo == DType::kF8E5M2) {
      code = hn::IfThenElse(is_nan, set(0x7e), code);
    } else if constexpr (kTo == DType::kF4) {  // F4 has no NaN: it becomes zero with the opposite sign
      code = hn::IfThenElse(is_nan, hn::Xor(sign, set(0x8)), hn::Or(code, sign));
      return code;
    } else if constexpr (kFormat.specials == FloatFormat::Specials::kNegativeZeroIsNan) {
      sign = hn::IfThenElse(hn::Eq(code, set(0)), code, sign);
    }
    return hn::Or(code, sign);
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
constexpr bool kHasF16Instructions = true;
#else
constexpr bool kHasF16Instructions = false;
#endif

// Dtypes with a faster conversion than the ones above, which is correct for everything except NaN.
constexpr bool has_quick_decode(DType from) { return from == DType::kF16 && kHasF16Instructions; }
constexpr bool has_quick_encode(DType to) { return to == DType::kBF16 || (to == DType::kF16 && kHasF16Instructions); }

HWY_INLINE auto as_floats(Vector32 v) { return hn::BitCast(hn::RebindToFloat<Lanes32>(), v); }

HWY_INLINE bool f32_block_has_nan(const std::uint8_t* in) {
  const Lanes32 d;
  auto nan = hn::IsNaN(as_floats(load(d, in)));
  for (std::size_t i = hn::Lanes(d); i < kBlock; i += hn::Lanes(d)) nan = hn::Or(nan, hn::IsNaN(as_floats(load(d, in + i * 4))));
  return !hn::AllFalse(hn::RebindToFloat<Lanes32>(), nan);
}

HWY_INLINE bool f16_block_has_nan(const std::uint8_t* in) {
  const Lanes32 d;
  const hn::Repartition<std::int16_t, Lanes32> d16;
  auto largest = hn::Zero(d16);
  for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d16)) {
    largest = hn::Max(largest, hn::And(hn::BitCast(d16, load(d, in + i * 2)), hn::Set(d16, 0x7fff)));
  }
  return !hn::AllFalse(d16, hn::Gt(largest, hn::Set(d16, 0x7c00)));
}

HWY_INLINE Vector32 quick_decode_f16(Lanes32 d, const std::uint8_t* bytes) {
  const hn::Rebind<hwy::float16_t, Lanes32> d16;
  const auto codes = hn::BitCast(d16, hn::LoadU(hn::Repartition<std::uint8_t, decltype(d16)>(), bytes));
  return hn::BitCast(d, hn::PromoteTo(hn::RebindToFloat<Lanes32>(), codes));
}

HWY_INLINE Vector32 round_to_bf16(Lanes32 d, Vector32 x) {
  const auto odd = hn::And(shift_right_logical<16>(d, x), hn::Set(d, 1));
  return hn::Add(x, hn::Add(odd, hn::Set(d, 0x7fff)));
}

// Converts two vectors of F32 to one of 16-bit codes.
template <DType kTo>
HWY_INLINE Vector32 quick_encode(Lanes32 d, Vector32 low, Vector32 high) {
  if constexpr (kTo == DType::kBF16) {
    const hn::Repartition<std::uint16_t, Lanes32> d16;
    const auto codes = hn::ConcatOdd(d16, hn::BitCast(d16, round_to_bf16(d, high)), hn::BitCast(d16, round_to_bf16(d, low)));
    return hn::BitCast(d, codes);
  } else {
    const hn::Rebind<hwy::float16_t, Lanes32> d16;
    const hn::Repartition<std::uint16_t, Lanes32> du16;
    const hn::Half<decltype(du16)> du16_half;
    const auto codes = hn::Combine(du16, hn::BitCast(du16_half, hn::DemoteTo(d16, as_floats(high))),
                                   hn::BitCast(du16_half, hn::DemoteTo(d16, as_floats(low))));
    return hn::BitCast(d, codes);
  }
}

}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
