#include "scheme/mlx/decode.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <ballast/convert.h>

#include "quantize/packing.h"
#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::raw;
using test::to_text;

constexpr auto kAffine = QuantizationMode::kAffine;

std::string dequantize(QuantizationMode mode, const RowFormat& format, std::string_view packed, std::string_view scales,
                       std::string_view biases, DType dtype) {
  const std::size_t rows = packed.size() / std::max<std::size_t>(1, format.packed_bytes());
  std::vector<std::byte> out(rows * format.columns * bits(dtype) / 8);
  dequantize_mlx_rows(mode, format, {.packed = as_bytes(packed), .scales = as_bytes(scales), .biases = as_bytes(biases)}, dtype,
                      out);
  return to_text(out);
}

std::string as(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * bits(dtype) / 8);
  EXPECT_TRUE(convert_values(DType::kF32, std::as_bytes(std::span(values)), dtype, out));
  return to_text(out);
}

TEST(MlxDequantize, F32IsRoundedAsF32) {
  const RowFormat format{.columns = 4, .bits = 2, .group_size = 32, .parameters = DType::kF32};
  EXPECT_EQ(dequantize(kAffine, format, "\xe4", raw({0.1F}), raw({-0.15F}), DType::kF32),
            raw({-0.15F, 0.1F - 0.15F, 0.2F - 0.15F, 3 * 0.1F - 0.15F}));
}

// 3 * (1 + 1/128) lies between two numbers of BF16 and 3 * (1 + 1/1024) between two of F16: both go up, and the sum tells.
TEST(MlxDequantize, SixteenBitsAreRoundedAfterTheProductAndAfterTheSum) {
  RowFormat format{.columns = 2, .bits = 4, .group_size = 32, .parameters = DType::kBF16};
  const auto one = [](std::uint16_t bits) { return raw({bits}); };
  EXPECT_EQ(dequantize(kAffine, format, "\x03", one(0x3f81), one(0xc040), DType::kBF16), raw<std::uint16_t>({0x3d00, 0xc040}));
  EXPECT_EQ(dequantize(kAffine, format, "\x03", one(0x3f81), one(0xc040), DType::kF32), raw({0.03125F, -3.0F}));
  EXPECT_EQ(dequantize(kAffine, format, "\x03", one(0x3f81), one(0xc040), DType::kF16), raw<std::uint16_t>({0x2800, 0xc200}));
  format.parameters = DType::kF16;
  EXPECT_EQ(dequantize(kAffine, format, "\x03", one(0x3c01), one(0xc200), DType::kF16), raw<std::uint16_t>({0x1c00, 0xc200}));
  EXPECT_EQ(dequantize(kAffine, format, "\x03", one(0x3c01), one(0xc200), DType::kF32), raw({0.00390625F, -3.0F}));
  format.parameters = DType::kF32;
  EXPECT_EQ(dequantize(kAffine, format, "\x03", raw({1.0078125F}), raw({-3.0F}), DType::kF32), raw({0.0234375F, -3.0F}));
}

TEST(MlxDequantize, WithoutBiasesCodesAreMultiplied) {
  const RowFormat format{.columns = 3, .bits = 8, .group_size = 64, .parameters = DType::kF16};
  EXPECT_EQ(dequantize(kAffine, format, std::string("\x00\x01\xff", 3), raw<std::uint16_t>({0x3800}), "", DType::kF32),
            raw({0.0F, 0.5F, 127.5F}));
}

// Rows longer than what is done at a time, and a last group that is shorter than the others.
TEST(MlxDequantize, EveryWidthAndGroupAndRow) {
  std::mt19937 random(1);
  for (const unsigned width : {2U, 3U, 4U, 5U, 6U, 8U}) {
    for (const unsigned group_size : {32U, 64U, 128U, 256U}) {
      for (const std::uint64_t columns : {std::uint64_t{8}, std::uint64_t{1024}, std::uint64_t{2536}}) {
        constexpr std::uint64_t kRows = 3;
        const RowFormat format{.columns = columns, .bits = width, .group_size = group_size, .parameters = DType::kF32};
        std::vector<std::byte> packed(kRows * format.packed_bytes());
        std::vector<float> scales(kRows * format.groups());
        std::vector<float> biases(kRows * format.groups());
        std::vector<float> expected(kRows * columns);
        for (auto& scale : scales) scale = static_cast<float>(random()) * 1e-9F;
        for (auto& bias : biases) bias = static_cast<float>(random()) * -1e-9F;
        for (std::uint64_t row = 0; row < kRows; ++row) {
          std::vector<std::uint8_t> codes(columns);
          for (std::uint64_t i = 0; i < columns; ++i) {
            codes[i] = static_cast<std::uint8_t>(random() % (1U << width));
            const std::uint64_t group = row * format.groups() + i / group_size;
            expected[row * columns + i] = static_cast<float>(codes[i]) * scales[group] + biases[group];
          }
          pack_codes(width, codes, packed.data() + row * format.packed_bytes());
        }
        const auto found = dequantize(kAffine, format, to_text(packed), to_text(std::as_bytes(std::span(scales))),
                                      to_text(std::as_bytes(std::span(biases))), DType::kF32);
        EXPECT_EQ(found, to_text(std::as_bytes(std::span(expected)))) << width << " bits, groups of " << group_size;
      }
    }
  }
}

TEST(MlxDequantize, F64IsTheF32ValueWidened) {
  std::mt19937 random(2);
  const auto bytes = [&](std::uint64_t count) {
    std::string made(count, '\0');
    for (char& byte : made) byte = static_cast<char>(random() % 0x7c);  // finite, as codes and as parameters of any dtype
    return made;
  };
  const auto check = [&](QuantizationMode mode, RowFormat format, std::uint64_t parameter_bytes) {
    constexpr std::uint64_t kRows = 3;
    format.columns = 1536;
    const std::string packed = bytes(kRows * format.packed_bytes());
    const std::string scales = bytes(kRows * format.groups() * parameter_bytes);
    const std::string biases = mode == kAffine ? bytes(scales.size()) : "";
    std::vector<float> restore(format.columns, 1.0F);
    restore[7] = 0.25F;
    for (const std::span<const float> columns : {std::span<const float>(), std::span<const float>(restore)}) {
      format.restore = columns;
      const std::string floats = dequantize(mode, format, packed, scales, biases, DType::kF32);
      std::string expected(floats.size() * 2, '\0');
      ASSERT_TRUE(convert_values(DType::kF32, as_bytes(floats), DType::kF64, std::as_writable_bytes(std::span(expected))));
      EXPECT_NE(expected, std::string(expected.size(), '\0'));
      EXPECT_TRUE(dequantize(mode, format, packed, scales, biases, DType::kF64) == expected)
          << name(mode) << " of " << name(format.parameters) << (columns.empty() ? "" : ", equalized");
    }
  };
  for (const DType parameters : {DType::kF32, DType::kF16, DType::kBF16}) {
    check(kAffine, {.bits = 4, .group_size = 64, .parameters = parameters}, bits(parameters) / 8);
  }
  check(QuantizationMode::kMxfp4, {.bits = 4, .group_size = 32}, 1);
  check(QuantizationMode::kMxfp8, {.bits = 8, .group_size = 32}, 1);
  check(QuantizationMode::kNvfp4, {.bits = 4, .group_size = 16}, 1);
}

TEST(MlxDequantize, Mxfp4IsAPowerOfTwoTimesE2m1) {
  const RowFormat format{.columns = 16, .bits = 4, .group_size = 32, .parameters = DType::kBF16};
  const std::string codes = "\x10\x32\x54\x76\x98\xba\xdc\xfe";
  std::vector<float> expected{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  EXPECT_EQ(dequantize(QuantizationMode::kMxfp4, format, codes, "\x7f", "", DType::kF32), as(DType::kF32, expected));
  for (float& value : expected) value *= 0x1p-15F;
  EXPECT_EQ(dequantize(QuantizationMode::kMxfp4, format, codes, "\x70", "", DType::kBF16), as(DType::kBF16, expected));
  EXPECT_EQ(dequantize(QuantizationMode::kMxfp4, format, codes, "\x70", "", DType::kF16), as(DType::kF16, expected));
}

TEST(MlxDequantize, Mxfp8IsAPowerOfTwoTimesE4m3) {
  const RowFormat format{.columns = 4, .bits = 8, .group_size = 32, .parameters = DType::kBF16};
  EXPECT_EQ(dequantize(QuantizationMode::kMxfp8, format, "\x01\x38\x7e\xb8", "\x80", "", DType::kF32),
            raw({0x1p-8F, 2.0F, 896.0F, -2.0F}));
}

TEST(MlxDequantize, Nvfp4HasE4m3ScalesForSixteen) {
  const RowFormat format{.columns = 32, .bits = 4, .group_size = 16, .parameters = DType::kBF16};
  const std::string codes(16, '\x72');
  std::vector<float> expected;
  for (int i = 0; i < 32; ++i) expected.push_back((i % 2 == 0 ? 1.0F : 6.0F) * (i < 16 ? 1.125F : 448.0F));
  EXPECT_EQ(dequantize(QuantizationMode::kNvfp4, format, codes, "\x39\x7e", "", DType::kF32), as(DType::kF32, expected));
}

}  // namespace
}  // namespace ballast
