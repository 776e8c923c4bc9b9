#include "convert/reference.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "convert/float_format.h"

namespace ballast {
namespace {

// The exact value of any dtype: ±mantissa · 2^exponent, an infinity or a NaN.
struct Number {
  enum class Kind : std::uint8_t { kFinite, kInfinite, kNan };

  Kind kind = Kind::kFinite;
  bool negative = false;
  std::uint64_t mantissa = 0;  // for NaN: the payload, at its position in F64
  int exponent = 0;
};

struct Encoded {
  std::uint64_t code = 0;
  bool lost = false;
};

constexpr std::uint64_t kQuiet = std::uint64_t{1} << 51;  // the top bit of the payload

std::uint64_t low_bits(unsigned count) { return count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1; }

Number decode_integer(DType dtype, std::uint64_t code) {
  if (dtype == DType::kBool) return {.mantissa = code != 0 ? 1U : 0U};
  const bool negative = info(dtype).kind == NumberKind::kSigned && (code >> (bits(dtype) - 1)) != 0;
  return {.negative = negative, .mantissa = negative ? (0 - code) & low_bits(bits(dtype)) : code};
}

Number decode_float(DType dtype, std::uint64_t code) {
  using enum FloatFormat::Specials;
  if (dtype == DType::kF8E8M0) {
    if (code == 0xff) return {.kind = Number::Kind::kNan, .mantissa = kQuiet};
    return {.mantissa = 1, .exponent = static_cast<int>(code) - 127};
  }
  const FloatFormat format = *float_format(dtype);
  const bool negative = (code & format.sign_bit()) != 0;
  const std::uint64_t magnitude = code & (format.sign_bit() - 1);
  const std::uint64_t mantissa = magnitude & low_bits(static_cast<unsigned>(format.mantissa_bits));
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const Number nan{.kind = Number::Kind::kNan, .negative = negative, .mantissa = kQuiet};
  if (format.specials == kTopCodeIsNan && magnitude == format.overflow()) return nan;
  if (format.specials == kNegativeZeroIsNan && code == format.overflow()) return nan;
  if (format.specials == kIeee && magnitude >= format.infinity()) {
    if (mantissa == 0) return {.kind = Number::Kind::kInfinite, .negative = negative};
    if (dtype == DType::kF8E5M2) return nan;
    return {.kind = Number::Kind::kNan, .negative = negative, .mantissa = mantissa << (52 - format.mantissa_bits)};
  }
  const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << format.mantissa_bits;
  return {.negative = negative,
          .mantissa = mantissa | hidden,
          .exponent = std::max(exponent, 1) - format.bias - format.mantissa_bits};
}

bool is_float(DType dtype) { return info(dtype).kind == NumberKind::kFloat; }

Number decode(DType dtype, std::uint64_t code) {
  return is_float(dtype) ? decode_float(dtype, code) : decode_integer(dtype, code);
}

// mantissa / 2^shift to the nearest integer, ties to even.
std::uint64_t shift_and_round(std::uint64_t mantissa, int shift) {
  if (mantissa == 0 || shift > 64) return 0;
  if (shift <= 0) return mantissa << -shift;
  const std::uint64_t kept = shift == 64 ? 0 : mantissa >> shift;
  const std::uint64_t dropped = mantissa << (64 - shift);
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  return dropped > kHalf || (dropped == kHalf && kept % 2 == 1) ? kept + 1 : kept;
}

std::uint64_t encode_nan(DType dtype, const Number& nan) {
  const std::uint64_t sign = nan.negative ? float_format(dtype)->sign_bit() : 0;
  switch (dtype) {
    case DType::kF4: return sign ^ 0x8;
    case DType::kF8E5M2: return sign | 0x7e;
    case DType::kF8E4M3: return sign | 0x7f;
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz: return 0x80;
    case DType::kBF16: return sign | 0x7fc0;
    case DType::kF16: return sign | 0x7c00 | std::max<std::uint64_t>(nan.mantissa >> 42, 1);
    case DType::kF32: return sign | 0x7f800000 | nan.mantissa >> 29;
    default: return sign | float_format(dtype)->infinity() | nan.mantissa;
  }
}

int top_bit(const Number& number) { return 63 - std::countl_zero(number.mantissa) + number.exponent; }

std::uint64_t encode_e8m0(const Number& number) {
  if (number.kind != Number::Kind::kFinite || number.negative || number.mantissa == 0) return 0xff;
  const bool second_bit =
      (number.mantissa << std::countl_zero(number.mantissa) >> 62 & 1) != 0;  // at least 1.5 times the power of two
  return static_cast<std::uint64_t>(std::clamp(top_bit(number) + (second_bit ? 1 : 0) + 127, 0, 255));
}

std::uint64_t encode_float(DType dtype, const Number& number) {
  if (dtype == DType::kF8E8M0) return encode_e8m0(number);
  if (number.kind == Number::Kind::kNan) return encode_nan(dtype, number);
  const FloatFormat format = *float_format(dtype);
  const std::uint64_t sign = number.negative ? format.sign_bit() : 0;
  std::uint64_t code = format.overflow();
  if (number.kind == Number::Kind::kFinite) {
    const int smallest = 1 - format.bias;  // the exponent of subnormals and of the smallest normal numbers
    const int binade = number.mantissa == 0 ? smallest : std::max(top_bit(number), smallest);
    if (binade <= format.bias + 2) {
      // The hidden bit, if there is one, adds one to the exponent field; a carry from rounding adds another.
      const std::uint64_t mantissa = shift_and_round(number.mantissa, binade - format.mantissa_bits - number.exponent);
      code = std::min(code, (static_cast<std::uint64_t>(binade - smallest) << format.mantissa_bits) + mantissa);
    }
  }
  if (format.specials == FloatFormat::Specials::kNegativeZeroIsNan && code == 0) return 0;
  return code | sign;
}

// Rounds toward zero. The number must be below 2^64.
std::uint64_t integer_part(const Number& number) {
  if (number.exponent >= 0) return number.mantissa << number.exponent;
  return number.exponent <= -64 ? 0 : number.mantissa >> -number.exponent;
}

Encoded encode_integer(DType dtype, const Number& number) {
  const bool is_number = number.kind == Number::Kind::kFinite;
  if (dtype == DType::kBool) {
    const bool truth = !is_number || number.mantissa != 0;
    const bool one = is_number && !number.negative && std::has_single_bit(number.mantissa) && top_bit(number) == 0;
    return {.code = truth ? 1U : 0U, .lost = truth && !one};
  }
  if (number.kind == Number::Kind::kNan) return {.code = 0, .lost = true};
  if (is_number && number.mantissa == 0) return {};

  const unsigned width = bits(dtype);
  const bool is_signed = info(dtype).kind == NumberKind::kSigned;
  const std::uint64_t largest = is_signed ? low_bits(width - 1) : low_bits(width);
  const std::uint64_t most_negative = is_signed ? largest + 1 : 0;
  const std::uint64_t limit = number.negative ? most_negative : largest;
  const bool huge = !is_number || top_bit(number) >= 64;
  const std::uint64_t part = huge ? 0 : integer_part(number);
  const bool lost = huge || part > limit || std::countr_zero(number.mantissa) + number.exponent < 0;
  const std::uint64_t magnitude = huge ? limit : std::min(part, limit);
  return {.code = (number.negative ? 0 - magnitude : magnitude) & low_bits(width), .lost = lost};
}

bool equal(const Number& a, const Number& b) {
  if (a.kind != Number::Kind::kFinite || b.kind != Number::Kind::kFinite) return false;
  if (a.mantissa == 0 || b.mantissa == 0) return a.mantissa == b.mantissa;
  return a.negative == b.negative && top_bit(a) == top_bit(b) &&
         a.mantissa << std::countl_zero(a.mantissa) == b.mantissa << std::countl_zero(b.mantissa);
}

Encoded convert_one(DType from, std::uint64_t code, DType to) {
  Number number = decode(from, code);
  if (!is_float(to)) return encode_integer(to, number);
  // Conversions between F32 and F64 use the processor's instruction, which makes NaN quiet.
  const bool quiets = to == DType::kF64 || (from == DType::kF64 && to == DType::kF32);
  if (number.kind == Number::Kind::kNan && quiets) number.mantissa |= kQuiet;
  const std::uint64_t result = encode_float(to, number);
  return {.code = result, .lost = !is_float(from) && !equal(number, decode(to, result))};
}

std::uint64_t get(DType dtype, std::span<const std::byte> bytes, std::size_t index) {
  if (dtype == DType::kF4) return std::to_integer<std::uint64_t>(bytes[index / 2] >> (index % 2 * 4)) & 0xf;
  std::uint64_t code = 0;
  std::memcpy(&code, &bytes[index * bits(dtype) / 8], bits(dtype) / 8);
  return code;
}

void put(DType dtype, std::span<std::byte> bytes, std::size_t index, std::uint64_t code) {
  if (dtype == DType::kF4) {
    const std::byte other = index % 2 == 0 ? std::byte{0} : bytes[index / 2];
    bytes[index / 2] = other | static_cast<std::byte>(code << (index % 2 * 4));
  } else {
    std::memcpy(&bytes[index * bits(dtype) / 8], &code, bits(dtype) / 8);
  }
}

}  // namespace

ConversionLoss convert_by_reference(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  ConversionLoss loss;
  if (from == to) {
    std::ranges::copy(in, out.begin());
    return loss;
  }
  const std::size_t count = in.size() * 8 / bits(from);
  for (std::size_t i = 0; i < count; ++i) {
    const Encoded result = convert_one(from, get(from, in, i), to);
    put(to, out, i, result.code);
    if (result.lost && loss.count++ == 0) loss.first = i;
  }
  return loss;
}

}  // namespace ballast
