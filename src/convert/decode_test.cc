#include "convert/decode.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::raw;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> decode_all(DType dtype, std::string_view bytes) {
  std::vector<double> out(bytes.size() * 8 / bits(dtype) * parts(dtype));
  decode(dtype, as_bytes(bytes), out);
  return out;
}

std::vector<double> decode_every_byte(DType dtype) {
  std::string codes(256, '\0');
  std::iota(codes.begin(), codes.end(), '\0');
  return decode_all(dtype, codes);
}

std::vector<double> decode_every_pair(DType dtype) {
  std::string codes;
  for (int code = 0; code < 65536; ++code) codes += raw({static_cast<std::uint16_t>(code)});
  return decode_all(dtype, codes);
}

// Also compares the sign of zero. Any NaN equals any other NaN.
bool same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

// The values of the codes 0, 1, 2, …: each is the previous one plus a step, which doubles with every binade except the first.
std::vector<double> ladder(unsigned mantissa_bits, double smallest, std::size_t count) {
  const std::size_t binade = std::size_t{1} << mantissa_bits;
  std::vector<double> values{0.0};
  double step = smallest;
  while (values.size() < count) {
    values.push_back(values.back() + step);
    if ((values.size() - 1) % binade == 0 && values.size() - 1 > binade) step *= 2;
  }
  return values;
}

// Checks the codes below `finite` and their negatives against ladder(), and the others against special(code).
template <class Special>
void expect_ladder(const std::vector<double>& values, unsigned mantissa_bits, double smallest, std::size_t finite,
                   Special&& special) {
  const std::size_t half = values.size() / 2;
  const std::vector<double> expected = ladder(mantissa_bits, smallest, finite);
  for (std::size_t code = 0; code < values.size(); ++code) {
    const std::size_t magnitude = code % half;
    double value = magnitude < finite ? expected[magnitude] * (code < half ? 1.0 : -1.0) : std::nan("");
    if (const std::optional<double> other = special(code)) value = *other;
    EXPECT_TRUE(same(values[code], value)) << "code " << code << " is " << values[code] << ", expected " << value;
  }
}

void expect_codes(const std::vector<double>& values, std::initializer_list<std::pair<std::size_t, double>> golden) {
  for (const auto& [code, value] : golden) {
    EXPECT_TRUE(same(values[code], value)) << "code " << code << " is " << values[code] << ", expected " << value;
  }
}

constexpr auto kNothing = [](std::size_t) { return std::optional<double>(); };
constexpr auto kNanAt128 = [](std::size_t code) { return code == 128 ? std::optional(std::nan("")) : std::nullopt; };

TEST(Decode, F8E4M3) {
  const auto values = decode_every_byte(DType::kF8E4M3);
  expect_codes(values, {{0x00, 0.0},
                        {0x80, -0.0},
                        {0x01, 0x1p-9},
                        {0x07, 0x7p-9},
                        {0x08, 0x1p-6},
                        {0x38, 1.0},
                        {0x39, 1.125},
                        {0xc0, -2.0},
                        {0x7e, 448.0},
                        {0xfe, -448.0},
                        {0x7f, std::nan("")},
                        {0xff, std::nan("")}});
  expect_ladder(values, 3, 0x1p-9, 0x7f, kNothing);
}

TEST(Decode, F8E5M2) {
  const auto values = decode_every_byte(DType::kF8E5M2);
  expect_codes(values, {{0x00, 0.0},
                        {0x80, -0.0},
                        {0x01, 0x1p-16},
                        {0x04, 0x1p-14},
                        {0x3c, 1.0},
                        {0x3d, 1.25},
                        {0x7b, 57344.0},
                        {0x7c, kInf},
                        {0xfc, -kInf},
                        {0x7d, std::nan("")},
                        {0x7f, std::nan("")},
                        {0xff, std::nan("")}});
  expect_ladder(values, 2, 0x1p-16, 0x7c,
                [](std::size_t code) { return code % 128 == 0x7c ? std::optional(code < 128 ? kInf : -kInf) : std::nullopt; });
}

TEST(Decode, F8E4M3Fnuz) {
  const auto values = decode_every_byte(DType::kF8E4M3Fnuz);
  expect_codes(values,
               {{0x00, 0.0}, {0x80, std::nan("")}, {0x01, 0x1p-10}, {0x08, 0x1p-7}, {0x40, 1.0}, {0x7f, 240.0}, {0xff, -240.0}});
  expect_ladder(values, 3, 0x1p-10, 0x80, kNanAt128);
}

TEST(Decode, F8E5M2Fnuz) {
  const auto values = decode_every_byte(DType::kF8E5M2Fnuz);
  expect_codes(values, {{0x00, 0.0}, {0x80, std::nan("")}, {0x01, 0x1p-17}, {0x04, 0x1p-15}, {0x40, 1.0}, {0x7f, 57344.0}});
  expect_ladder(values, 2, 0x1p-17, 0x80, kNanAt128);
}

TEST(Decode, F8E8M0) {
  const auto values = decode_every_byte(DType::kF8E8M0);
  expect_codes(values, {{0, 0x1p-127}, {126, 0.5}, {127, 1.0}, {128, 2.0}, {254, 0x1p127}, {255, std::nan("")}});
  for (std::size_t code = 1; code < 255; ++code) EXPECT_EQ(values[code], 2 * values[code - 1]);
}

TEST(Decode, F4LowNibbleFirst) {
  EXPECT_EQ(decode_all(DType::kF4, "\x10\x32\x54\x76"), (std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6}));
  EXPECT_EQ(decode_all(DType::kF4, "\x98\xba\xdc\xfe"), (std::vector<double>{-0.0, -0.5, -1, -1.5, -2, -3, -4, -6}));
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto values = decode_every_byte(DType::kF4);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto value = [&](std::size_t nibble) { return kValues[nibble % 8] * (nibble < 8 ? 1.0 : -1.0); };
    EXPECT_TRUE(same(values[2 * byte], value(byte % 16))) << byte;
    EXPECT_TRUE(same(values[2 * byte + 1], value(byte / 16))) << byte;
  }
}

TEST(Decode, F16) {
  const auto values = decode_every_pair(DType::kF16);
  expect_codes(values, {{0x0000, 0.0},
                        {0x8000, -0.0},
                        {0x0001, 0x1p-24},
                        {0x03ff, 0x3ffp-24},
                        {0x0400, 0x1p-14},
                        {0x3c00, 1.0},
                        {0x3c01, 1.0009765625},
                        {0x3555, 0.333251953125},
                        {0xc000, -2.0},
                        {0x7bff, 65504.0},
                        {0x7c00, kInf},
                        {0xfc00, -kInf},
                        {0x7c01, std::nan("")},
                        {0x7e00, std::nan("")},
                        {0xffff, std::nan("")}});
  expect_ladder(values, 10, 0x1p-24, 0x7c00, [](std::size_t code) {
    return code % 0x8000 == 0x7c00 ? std::optional(code < 0x8000 ? kInf : -kInf) : std::nullopt;
  });
}

TEST(Decode, Bf16IsTheUpperHalfOfAnF32) {
  const auto values = decode_every_pair(DType::kBF16);
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const bool nan = (code & 0x7f80U) == 0x7f80U && (code & 0x7fU) != 0;
    if (nan) {
      EXPECT_TRUE(std::isnan(values[code])) << code;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(values[code])), code << 16) << code;
    }
  }
  expect_codes(values,
               {{0x3f80, 1.0}, {0x0001, 0x1p-133}, {0x7f7f, 0x1.fep127}, {0x7f80, kInf}, {0xff80, -kInf}, {0xc049, -3.140625}});
}

TEST(Decode, WholeNumbers) {
  EXPECT_EQ(decode_all(DType::kBool, std::string_view("\0\1", 2)), (std::vector<double>{0, 1}));
  EXPECT_EQ(decode_all(DType::kU8, "\x01\xff"), (std::vector<double>{1, 255}));
  EXPECT_EQ(decode_all(DType::kI8, "\x7f\x80\xff"), (std::vector<double>{127, -128, -1}));
  EXPECT_EQ(decode_all(DType::kI16, std::string_view("\xff\x7f\0\x80", 4)), (std::vector<double>{32767, -32768}));
  EXPECT_EQ(decode_all(DType::kU16, "\xff\xff"), (std::vector<double>{65535}));
  EXPECT_EQ(decode_all(DType::kI32, std::string_view("\0\0\0\x80\x01\x02\0\0", 8)), (std::vector<double>{-2147483648.0, 513}));
  EXPECT_EQ(decode_all(DType::kU32, "\xff\xff\xff\xff"), (std::vector<double>{4294967295.0}));
  EXPECT_EQ(decode_all(DType::kI64, std::string_view("\0\0\0\0\0\0\0\x80", 8)), (std::vector<double>{-0x1p63}));
  EXPECT_EQ(decode_all(DType::kU64, "\xff\xff\xff\xff\xff\xff\xff\xff"), (std::vector<double>{0x1p64}));
}

TEST(Decode, WideFloats) {
  EXPECT_EQ(decode_all(DType::kF32, std::string_view("\0\0\x80\x3f\xdb\x0f\x49\xc0", 8)),
            (std::vector<double>{1.0, -3.1415927410125732421875}));
  EXPECT_EQ(decode_all(DType::kF64, std::string_view("\x18\x2d\x44\x54\xfb\x21\x09\x40", 8)),
            (std::vector<double>{3.14159265358979311599796346854}));
  EXPECT_EQ(decode_all(DType::kC64, std::string_view("\0\0\x80\x3f\0\0\0\xc0", 8)), (std::vector<double>{1.0, -2.0}));
}

TEST(Decode, SpecialFloats) {
  const auto values = decode_all(DType::kF32, std::string_view("\0\0\x80\x7f\0\0\x80\xff\0\0\xc0\x7f\0\0\0\x80\x01\0\0\0", 20));
  expect_codes(values, {{0, kInf}, {1, -kInf}, {2, std::nan("")}, {3, -0.0}, {4, 0x1p-149}});
}

TEST(Decode, SourceNeedNotBeAligned) {
  const std::string bytes = "x" + raw({1.5, -2.5});
  EXPECT_EQ(decode_all(DType::kF64, std::string_view(bytes).substr(1)), (std::vector<double>{1.5, -2.5}));
}

TEST(Decode, F6HasNoStandardPacking) {
  EXPECT_FALSE(can_decode(DType::kF6E2M3));
  EXPECT_FALSE(can_decode(DType::kF6E3M2));
  std::vector<double> out{7};
  decode(DType::kF6E2M3, as_bytes("abc"), out);
  EXPECT_EQ(out[0], 7);
}

TEST(Decode, ComplexValuesAreTwoNumbers) {
  EXPECT_EQ(parts(DType::kC64), 2);
  EXPECT_EQ(parts(DType::kF64), 1);
}

}  // namespace
}  // namespace ballast
