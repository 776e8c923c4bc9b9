#include "convert/decode.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "convert/float_format.h"

namespace ballast {
namespace {

double decode_small(FloatFormat format, unsigned code) {
  using enum FloatFormat::Specials;
  const unsigned sign_bit = 1U << (format.exponent_bits + format.mantissa_bits);
  const unsigned top_exponent = (1U << format.exponent_bits) - 1;
  const unsigned exponent = (code & (sign_bit - 1)) >> format.mantissa_bits;
  const unsigned mantissa = code & ((1U << format.mantissa_bits) - 1);
  const double sign = (code & sign_bit) != 0 ? -1.0 : 1.0;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (format.specials == kNegativeZeroIsNan && code == sign_bit) return kNan;
  if (format.specials == kTopCodeIsNan && (code & (sign_bit - 1)) == sign_bit - 1) return kNan;
  if (format.specials == kIeee && exponent == top_exponent) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : kNan;
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - format.bias)
                       : sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - format.bias);
}

template <std::size_t kCodes>
std::array<double, kCodes> make_table(DType dtype) {
  std::array<double, kCodes> table{};
  for (unsigned code = 0; code < kCodes; ++code) table[code] = decode_small(*float_format(dtype), code);
  return table;
}

using ByteTable = std::array<double, 256>;

const ByteTable& byte_table(DType dtype) {
  static const ByteTable e5m2 = make_table<256>(DType::kF8E5M2);
  static const ByteTable e4m3 = make_table<256>(DType::kF8E4M3);
  static const ByteTable e4m3fnuz = make_table<256>(DType::kF8E4M3Fnuz);
  static const ByteTable e5m2fnuz = make_table<256>(DType::kF8E5M2Fnuz);
  static const ByteTable e8m0 = [] {  // only powers of two
    ByteTable table{};
    for (int code = 0; code < 255; ++code) table[static_cast<std::size_t>(code)] = std::ldexp(1.0, code - 127);
    table[255] = std::numeric_limits<double>::quiet_NaN();
    return table;
  }();
  switch (dtype) {
    case DType::kF8E5M2: return e5m2;
    case DType::kF8E4M3: return e4m3;
    case DType::kF8E4M3Fnuz: return e4m3fnuz;
    case DType::kF8E5M2Fnuz: return e5m2fnuz;
    default: return e8m0;
  }
}

void decode_f4(std::span<const std::byte> bytes, std::span<double> out) {
  static const auto table = make_table<16>(DType::kF4);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(bytes[i / 2]);
    out[i] = table[i % 2 == 0 ? byte & 0xfU : byte >> 4];
  }
}

// Branch-free so that the compiler can vectorize it. Multiplying by 2^112 adjusts the exponent bias and makes subnormals normal;
// infinities and NaN need their exponent set separately.
float half_to_float(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffU;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x7c00U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | (half & 0x8000U) << 16);
}

float bfloat_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Values in a file may be unaligned, hence memcpy.
template <class Stored, class Convert>
void decode_each(std::span<const std::byte> bytes, std::span<double> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<double>(convert(value));
  }
}

template <class Stored>
void decode_plain(std::span<const std::byte> bytes, std::span<double> out) {
  decode_each<Stored>(bytes, out, [](Stored value) { return value; });
}

}  // namespace

void decode(DType dtype, std::span<const std::byte> bytes, std::span<double> out) {
  using enum DType;
  switch (dtype) {
    case kF4: return decode_f4(bytes, out);
    case kF6E2M3:
    case kF6E3M2: return;
    case kBool:
    case kU8: return decode_plain<std::uint8_t>(bytes, out);
    case kI8: return decode_plain<std::int8_t>(bytes, out);
    case kF8E5M2:
    case kF8E4M3:
    case kF8E8M0:
    case kF8E4M3Fnuz:
    case kF8E5M2Fnuz:
      return decode_each<std::uint8_t>(bytes, out, [&table = byte_table(dtype)](std::uint8_t code) { return table[code]; });
    case kI16: return decode_plain<std::int16_t>(bytes, out);
    case kU16: return decode_plain<std::uint16_t>(bytes, out);
    case kF16: return decode_each<std::uint16_t>(bytes, out, half_to_float);
    case kBF16: return decode_each<std::uint16_t>(bytes, out, bfloat_to_float);
    case kI32: return decode_plain<std::int32_t>(bytes, out);
    case kU32: return decode_plain<std::uint32_t>(bytes, out);
    case kF32:
    case kC64: return decode_plain<float>(bytes, out);
    case kF64: return decode_plain<double>(bytes, out);
    case kI64: return decode_plain<std::int64_t>(bytes, out);
    case kU64: return decode_plain<std::uint64_t>(bytes, out);
  }
}

}  // namespace ballast
