#include <ballast/convert.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Converted {
  std::string bytes;
  ConversionLoss loss;
};

Converted convert(DType from, std::string_view in, DType to) {
  std::string out(in.size() * bits(to) / bits(from), '\0');
  const auto loss = convert_values(from, as_bytes(in), to, std::as_writable_bytes(std::span(out)));
  if (!loss) throw std::runtime_error(loss.error().message);
  return {.bytes = out, .loss = *loss};
}

// The output of a conversion without loss.
std::string exact(DType from, std::string_view in, DType to) {
  const Converted result = convert(from, in, to);
  EXPECT_EQ(result.loss.count, 0U);
  EXPECT_EQ(result.loss.first, 0U);
  return result.bytes;
}

testing::AssertionResult loses(const Converted& result, std::uint64_t count, std::uint64_t first) {
  if (result.loss.count == count && result.loss.first == first) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "lost " << result.loss.count << " from " << result.loss.first;
}

Result<ConversionLoss> attempt(DType from, std::size_t in_size, DType to, std::size_t out_size) {
  const std::string in(in_size, '\0');
  std::string out(out_size, '\0');
  return convert_values(from, as_bytes(in), to, std::as_writable_bytes(std::span(out)));
}

TEST(ConvertValues, F6AndComplexConvertToThemselvesOnly) {
  for (const DType dtype : {DType::kF6E2M3, DType::kF6E3M2, DType::kC64}) {
    EXPECT_TRUE(can_convert(dtype, dtype));
    EXPECT_FALSE(can_convert(dtype, DType::kF32));
    EXPECT_FALSE(can_convert(DType::kF32, dtype));
  }
  EXPECT_EQ(exact(DType::kF6E2M3, "abc", DType::kF6E2M3), "abc");
  EXPECT_EQ(exact(DType::kC64, "abcdefgh", DType::kC64), "abcdefgh");
}

TEST(ConvertValues, ErrorSaysWhyThereIsNoConversion) {
  EXPECT_TRUE(fails(attempt(DType::kF6E2M3, 3, DType::kF32, 16), Errc::kUnsupported,
                    "cannot convert F6_E2M3 to F32: F6_E2M3 has no standard packing"));
  EXPECT_TRUE(fails(attempt(DType::kF32, 16, DType::kF6E3M2, 3), Errc::kUnsupported,
                    "cannot convert F32 to F6_E3M2: F6_E3M2 has no standard packing"));
  EXPECT_TRUE(fails(attempt(DType::kC64, 8, DType::kF32, 4), Errc::kUnsupported, "cannot convert C64 to F32: C64 is complex"));
}

TEST(ConvertValues, SizesMustMatch) {
  EXPECT_TRUE(fails(attempt(DType::kF32, 7, DType::kBF16, 2), Errc::kInvalidArgument,
                    "7 bytes is not a whole number of 32-bit F32 values"));
  EXPECT_TRUE(fails(attempt(DType::kF32, 8, DType::kBF16, 6), Errc::kInvalidArgument,
                    "2 BF16 values need 4 bytes, but the output has 6"));
  EXPECT_TRUE(
      fails(attempt(DType::kF32, 8, DType::kF32, 4), Errc::kInvalidArgument, "2 F32 values need 8 bytes, but the output has 4"));
  EXPECT_TRUE(
      fails(attempt(DType::kF32, 12, DType::kF4, 1), Errc::kInvalidArgument, "3 F4 values of 4 bits do not fill whole bytes"));
}

TEST(ConvertValues, EmptyInputGivesEmptyOutput) {
  const auto loss = convert_values(DType::kF32, {}, DType::kI8, {});
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->count, 0U);
  EXPECT_TRUE(convert_values(DType::kF32, {}, DType::kF32, {}));
}

TEST(ConvertValues, SameDTypeIsACopy) {
  const std::string signalling = raw<std::uint32_t>({0x7f800001, 0xff812345});
  EXPECT_EQ(exact(DType::kF32, signalling, DType::kF32), signalling);
  EXPECT_EQ(exact(DType::kBool, "\2", DType::kBool), "\2");
}

TEST(ConvertValues, FloatsRoundTowardZeroAndSaturate) {
  const Converted result =
      convert(DType::kF32, raw<float>({1, -0.0F, 2.9F, -2.9F, 127, 128, -128, -129, kInf, -kInf, kNan}), DType::kI8);
  EXPECT_EQ(result.bytes, raw<std::int8_t>({1, 0, 2, -2, 127, 127, -128, -128, 127, -128, 0}));
  EXPECT_TRUE(loses(result, 7, 2));
}

TEST(ConvertValues, FloatsToTheWidestIntegers) {
  const std::string in = raw({0x1p63, 0x1.fffffffffffffp62, -0x1p63, -0x1.0000000000001p63, 0x1p64, 0x1.fffffffffffffp63, -0.5});
  const Converted to_signed = convert(DType::kF64, in, DType::kI64);
  EXPECT_EQ(to_signed.bytes, raw<std::int64_t>({INT64_MAX, 0x7ffffffffffffc00, INT64_MIN, INT64_MIN, INT64_MAX, INT64_MAX, 0}));
  EXPECT_TRUE(loses(to_signed, 5, 0));
  const Converted to_unsigned = convert(DType::kF64, in, DType::kU64);
  EXPECT_EQ(to_unsigned.bytes,
            raw<std::uint64_t>({0x8000000000000000, 0x7ffffffffffffc00, 0, 0, UINT64_MAX, 0xfffffffffffff800, 0}));
  EXPECT_TRUE(loses(to_unsigned, 4, 2));
}

TEST(ConvertValues, IntegersSaturate) {
  const Converted result = convert(DType::kI32, raw<std::int32_t>({255, 256, -1, 0, INT32_MAX}), DType::kU8);
  EXPECT_EQ(result.bytes, raw<std::uint8_t>({255, 255, 0, 0, 255}));
  EXPECT_TRUE(loses(result, 3, 1));
  EXPECT_TRUE(loses(convert(DType::kU64, raw<std::uint64_t>({1, 1ULL << 63}), DType::kI64), 1, 1));
  EXPECT_TRUE(loses(convert(DType::kI64, raw<std::int64_t>({1, -1}), DType::kU64), 1, 1));
}

TEST(ConvertValues, IntegersRoundOnceToFloats) {
  // 2^24 + 1 is between two floats. 2^60 + 2^36 + 1 rounds up only because of its last bit, which F64 cannot represent.
  const Converted to_f32 =
      convert(DType::kI64, raw<std::int64_t>({1 << 24, (1 << 24) + 1, (1LL << 60) + (1LL << 36) + 1}), DType::kF32);
  EXPECT_EQ(to_f32.bytes, raw<float>({0x1p24F, 0x1p24F, 0x1.000002p60F}));
  EXPECT_TRUE(loses(to_f32, 2, 1));
  const Converted to_f64 =
      convert(DType::kU64, raw<std::uint64_t>({(1ULL << 53) + 2, (1ULL << 53) + 1, UINT64_MAX}), DType::kF64);
  EXPECT_EQ(to_f64.bytes, raw({0x1.0000000000001p53, 0x1p53, 0x1p64}));
  EXPECT_TRUE(loses(to_f64, 2, 1));
}

TEST(ConvertValues, IntegersPastTheLargestFloatAreLost) {
  EXPECT_TRUE(loses(convert(DType::kI32, raw<std::int32_t>({65504, 65520}), DType::kF16), 1, 1));
  EXPECT_TRUE(loses(convert(DType::kI32, raw<std::int32_t>({448, 480}), DType::kF8E4M3), 1, 1));
  EXPECT_TRUE(loses(convert(DType::kU8, raw<std::uint8_t>({6, 7}), DType::kF4), 1, 1));
  EXPECT_TRUE(loses(convert(DType::kI8, raw<std::int8_t>({1, 0, 3, -1}), DType::kF8E8M0), 3, 1));
}

TEST(ConvertValues, Bool) {
  const Converted result = convert(DType::kF32, raw<float>({0, -0.0F, 1, 2, -1, 0.5F, kNan, kInf}), DType::kBool);
  EXPECT_EQ(result.bytes, raw<std::uint8_t>({0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(loses(result, 5, 3));
  EXPECT_EQ(exact(DType::kBool, raw<std::uint8_t>({0, 1, 2, 255}), DType::kF32), raw<float>({0, 1, 1, 1}));
  EXPECT_EQ(exact(DType::kBool, raw<std::uint8_t>({0, 255}), DType::kI64), raw<std::int64_t>({0, 1}));
}

TEST(ConvertValues, LossesAreCountedAcrossChunks) {
  std::string in;
  for (int i = 0; i < 10'000; ++i) in += raw<float>({i >= 5000 && i % 2 == 0 ? 0.5F : 1.0F});
  EXPECT_TRUE(loses(convert(DType::kF32, in, DType::kI16), 2500, 5000));
}

TEST(ConvertValues, RoundingFromFloatToFloatIsNotALoss) {
  EXPECT_EQ(exact(DType::kF64, raw<double>({0.1, 1e300, kNan}), DType::kF16), raw<std::uint16_t>({0x2e66, 0x7c00, 0x7e00}));
}

// Just above the midpoint of two numbers of the target dtype; as F32 it rounds to the midpoint, so rounding twice would round
// down to even.
TEST(ConvertValues, DoublesRoundOnce) {
  EXPECT_EQ(exact(DType::kF64, raw({0x1.010000000001p0}), DType::kBF16), raw<std::uint16_t>({0x3f81}));
  EXPECT_EQ(exact(DType::kF64, raw({0x1.002000000001p0}), DType::kF16), raw<std::uint16_t>({0x3c01}));
  EXPECT_EQ(exact(DType::kF64, raw({0x1.100000000001p0}), DType::kF8E4M3), "\x39");
}

}  // namespace
}  // namespace ballast
