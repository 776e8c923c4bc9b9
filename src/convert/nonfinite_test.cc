#include "convert/nonfinite.h"

#include <cmath>

#include <gtest/gtest.h>

#include "convert/decode.h"

namespace ballast {
namespace {

// Checks every code of every small float against decode().
TEST(Nonfinite, AgreesWithDecoding) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (bits(dtype) < 8 || bits(dtype) > 16) continue;
    const std::size_t size = bits(dtype) / 8;
    for (unsigned code = 0; code < 1U << bits(dtype); ++code) {
      const std::array<std::byte, 2> bytes{static_cast<std::byte>(code), static_cast<std::byte>(code >> 8)};
      double value = 0;
      decode(dtype, std::span(bytes).first(size), {&value, 1});
      ASSERT_EQ(count_nonfinite(dtype, std::span(bytes).first(size)), std::isfinite(value) ? 0U : 1U)
          << name(dtype) << " " << code;
    }
  }
}

TEST(Nonfinite, CountsWideFloats) {
  const std::array<float, 4> floats{1, INFINITY, -NAN, 3.4e38F};
  EXPECT_EQ(count_nonfinite(DType::kF32, std::as_bytes(std::span(floats))), 2U);
  const std::array<double, 3> doubles{-INFINITY, 1e308, NAN};
  EXPECT_EQ(count_nonfinite(DType::kF64, std::as_bytes(std::span(doubles))), 2U);
}

}  // namespace
}  // namespace ballast
