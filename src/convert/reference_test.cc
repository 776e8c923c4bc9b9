// Compares the reference with bytes computed by hand; ml_dtypes and NumPy give the same.

#include "convert/reference.h"

#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

struct Golden {
  std::uint64_t in;
  std::uint64_t out;
};

void expect(DType from, DType to, std::initializer_list<Golden> golden) {
  for (const auto& [code, expected] : golden) {
    std::array<std::byte, 8> in;
    std::memcpy(in.data(), &code, sizeof(code));
    std::array<std::byte, 16> out{};
    // Two values, so that 4-bit values fill a byte.
    std::array<std::byte, 16> twice{};
    const std::size_t size = bits(from) / 8;
    std::copy_n(in.begin(), size, twice.begin());
    std::copy_n(in.begin(), size, twice.begin() + static_cast<std::ptrdiff_t>(size));
    convert_by_reference(from, std::span(twice).first(2 * size), to, std::span(out).first(bits(to) / 4));
    std::uint64_t result = 0;
    std::memcpy(&result, out.data(), bits(to) < 8 ? 1 : bits(to) / 8);
    if (bits(to) < 8) result &= 0xf;
    EXPECT_EQ(result, expected) << fmt::format("{} {:#x} to {}: {:#x}, expected {:#x}", name(from), code, name(to), result,
                                               expected);
  }
}

using enum DType;

TEST(ConvertReference, F32ToBF16) {
  expect(kF32, kBF16,
         {{0x3f800000, 0x3f80},
          {0x3f808000, 0x3f80},  // a tie, to even
          {0x3f818000, 0x3f82},  // a tie, to even
          {0x3f808001, 0x3f81},
          {0x7f7fffff, 0x7f80},  // overflows
          {0x80000001, 0x8000},  // the smallest subnormal
          {0x00008001, 0x0001},
          {0xff800000, 0xff80},
          {0x7f800001, 0x7fc0},  // NaN
          {0xffffffff, 0xffc0}});
}

TEST(ConvertReference, F32ToF16) {
  expect(kF32, kF16,
         {{0x3f800000, 0x3c00},
          {0x477fefff, 0x7bff},
          {0x477ff000, 0x7c00},  // 65520, a tie, overflows
          {0x33000000, 0x0000},  // 2^-25, a tie with zero
          {0x33000001, 0x0001},
          {0x33c00000, 0x0002},  // 1.5 subnormal steps, a tie
          {0x387fffff, 0x0400},  // subnormal up to normal
          {0xff800000, 0xfc00},
          {0x7f800001, 0x7c01},  // a payload that would become 0 becomes 1
          {0xffc02000, 0xfe01}});
}

TEST(ConvertReference, HalvesToF32) {
  expect(kF16, kF32,
         {{0x0001, 0x33800000}, {0x83ff, 0xb87fc000}, {0x7bff, 0x477fe000}, {0xfc00, 0xff800000}, {0x7c01, 0x7f802000}});
  expect(kBF16, kF32, {{0x0001, 0x00010000}, {0xff81, 0xff810000}});
}

TEST(ConvertReference, F8E5M2) {
  expect(
      kF32, kF8E5M2,
      {{0x476fffff, 0x7b}, {0x47700000, 0x7c}, {0x7f800000, 0x7c}, {0xff800001, 0xfe}, {0x37800000, 0x01}, {0x37000000, 0x00}});
  expect(kF8E5M2, kF32, {{0x7c, 0x7f800000}, {0x7d, 0x7fc00000}, {0xff, 0xffc00000}, {0x01, 0x37800000}});
}

TEST(ConvertReference, F8E4M3) {
  expect(
      kF32, kF8E4M3,
      {{0x43e80000, 0x7e}, {0x43e80001, 0x7f}, {0xff800000, 0xff}, {0x7fc00000, 0x7f}, {0x3b000000, 0x01}, {0xba800000, 0x80}});
  expect(kF8E4M3, kF32, {{0x7e, 0x43e00000}, {0x7f, 0x7fc00000}, {0xff, 0xffc00000}});
}

TEST(ConvertReference, FnuzHasOneNanAndOneZero) {
  expect(kF32, kF8E4M3Fnuz, {{0x80000000, 0x00}, {0xff800000, 0x80}, {0x43780000, 0x80}, {0x4377ffff, 0x7f}, {0xffc00000, 0x80}});
  expect(kF32, kF8E5M2Fnuz, {{0x80000001, 0x00}, {0x7f800000, 0x80}, {0x47700000, 0x80}, {0x476fffff, 0x7f}});
  expect(kF8E4M3Fnuz, kF32, {{0x80, 0xffc00000}, {0x7f, 0x43700000}, {0x01, 0x3a800000}});
  expect(kF8E5M2Fnuz, kF32, {{0x80, 0xffc00000}, {0x7f, 0x47600000}});
}

TEST(ConvertReference, E8M0HasOnlyPowersOfTwo) {
  expect(kF32, kF8E8M0,
         {{0x3fbfffff, 0x7f},  // just below 1.5
          {0x3fc00000, 0x80},
          {0x40400000, 0x81},  // 3, as near to 2 as to 4
          {0x00000001, 0x00},
          {0x00400000, 0x00},  // 2^-127
          {0x00600000, 0x01},
          {0x7f400000, 0xff},  // rounds to 2^128
          {0x00000000, 0xff},
          {0xbf800000, 0xff},
          {0x7f800000, 0xff},
          {0x7fc00000, 0xff}});
  expect(kF8E8M0, kF32, {{0x00, 0x00400000}, {0x01, 0x00800000}, {0xfe, 0x7f000000}, {0xff, 0x7fc00000}});
}

TEST(ConvertReference, F4SaturatesAndHasNoNan) {
  expect(kF32, kF4,
         {{0x40a00000, 0x6},  // 5, a tie, to 4
          {0x40a00001, 0x7},
          {0x7f800000, 0x7},
          {0xff800000, 0xf},
          {0x3e800000, 0x0},  // 0.25, a tie with zero
          {0xbe800001, 0x9},
          {0x7fc00000, 0x8},
          {0xffc00000, 0x0}});
}

TEST(ConvertReference, F64) {
  expect(kF64, kF32, {{0x3ff0000010000000, 0x3f800000}, {0x3ff0000010000001, 0x3f800001}, {0x7ff0000000000001, 0x7fc00000}});
  expect(kF64, kF16, {{0x7ff0000000000001, 0x7c01}, {0x0000000000000001, 0x0000}, {0x3e60000000000001, 0x0001}});
  expect(kF64, kF8E8M0, {{0x0000000000000001, 0x00}, {0x7fefffffffffffff, 0xff}});
  expect(kF32, kF64, {{0x00000001, 0x36a0000000000000}, {0x7f800001, 0x7ff8000020000000}});
}

TEST(ConvertReference, Integers) {
  expect(kI8, kI64, {{0x80, 0xffffffffffffff80}});
  expect(kI64, kU8, {{0xffffffffffffffff, 0x00}, {0x100, 0xff}});
  expect(kU64, kF32, {{0xffffffffffffffff, 0x5f800000}});
  expect(kF64, kI32, {{0xc1e0000000200000, 0x80000000}, {0xc1e0000000000000, 0x80000000}, {0x41dfffffffe00000, 0x7fffffff}});
}

}  // namespace
}  // namespace ballast
