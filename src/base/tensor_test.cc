#include <ballast/tensor.h>

#include <array>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;

TEST(DType, NamesAndSizesAreInTheOrderOfTheWritersRank) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 22> kExpected{{
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
  }};
  for (std::size_t i = 0; i < kExpected.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(name(dtype), kExpected[i].first);
    EXPECT_EQ(bits(dtype), kExpected[i].second) << name(dtype);
    EXPECT_EQ(parse_dtype(kExpected[i].first), dtype);
  }
  EXPECT_EQ(name(DType::kU64), "U64");
  EXPECT_EQ(name(DType::kBF16), "BF16");
  EXPECT_EQ(name(DType::kF8E5M2Fnuz), "F8_E5M2FNUZ");
}

TEST(DType, SpellingIsExact) {
  for (const char* text : {"", "f32", "F32 ", "FLOAT32", "BF", "U4"}) EXPECT_EQ(parse_dtype(text), std::nullopt) << text;
}

TEST(TensorInfo, ScalarHasOneElement) { EXPECT_EQ(TensorInfo{}.elements(), 1); }

TEST(TensorView, TypedAccessNeedsAMatchingDtype) {
  alignas(8) const std::array<float, 2> values{1.5F, -2.0F};
  const TensorView view{.name = "a\n", .dtype = DType::kF32, .bytes = std::as_bytes(std::span(values))};
  const auto floats = view.as<float>();
  ASSERT_TRUE(floats);
  EXPECT_EQ(floats->data(), values.data());
  EXPECT_EQ(floats->size(), 2);
  EXPECT_TRUE(fails(view.as<double>(), Errc::kInvalidArgument,
                    "tensor 'a\\n': dtype F32 cannot be viewed as the requested 8-byte type; use read<T>() to convert it"));
  EXPECT_TRUE(fails(view.as<std::int32_t>(), Errc::kInvalidArgument,
                    "tensor 'a\\n': dtype F32 cannot be viewed as the requested 4-byte type; use read<T>() to convert it"));
}

TEST(TensorView, TypedAccessNeedsAlignment) {
  alignas(8) const std::array<std::byte, 16> bytes{};
  const TensorView view{.name = "t", .dtype = DType::kI64, .bytes = std::span(bytes).subspan(3, 8)};
  EXPECT_TRUE(
      fails(view.as<std::int64_t>(), Errc::kUnsupported,
            "tensor 't' starts 3 bytes past a multiple of 8, so it cannot be viewed in place; use read() for an aligned copy"));
}

TEST(TensorView, SmallFloatsAreViewedAsRawBits) {
  alignas(2) const std::array<std::byte, 4> bytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  const auto codes = TensorView{.name = "t", .dtype = DType::kBF16, .bytes = bytes}.as<std::uint16_t>();
  ASSERT_TRUE(codes);
  EXPECT_EQ((*codes)[1], 0x0403);
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0}) {
    EXPECT_TRUE((TensorView{.dtype = dtype, .bytes = bytes}.as<std::uint8_t>())) << name(dtype);
  }
}

TEST(TensorView, PackedDtypesHaveNoTypedView) {
  EXPECT_TRUE(fails(TensorView{.name = "t", .dtype = DType::kF4}.as<std::uint8_t>(), Errc::kInvalidArgument,
                    "tensor 't': dtype F4 cannot be viewed as the requested 1-byte type; use read<T>() to convert it"));
  EXPECT_TRUE(fails(TensorView{.name = "t", .dtype = DType::kF6E2M3}.as<std::uint8_t>(), Errc::kInvalidArgument,
                    "tensor 't': dtype F6_E2M3 cannot be viewed as the requested 1-byte type; use read<T>() to convert it"));
}

TEST(TensorView, EmptyTensorsGiveEmptySpansAtAnyAddress) {
  alignas(8) const std::array<std::byte, 8> bytes{};
  const auto values = TensorView{.name = "t", .dtype = DType::kF64, .bytes = std::span(bytes).subspan(3, 0)}.as<double>();
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_TRUE(values->empty());
}

TEST(Tensor, BytesAreAlignedTo64) {
  for (const std::size_t size : {0U, 1U, 100U}) {
    const Tensor tensor("t", DType::kU8, {size}, size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes().data()) % 64, 0);
    EXPECT_EQ(tensor.view().bytes.size(), size);
    EXPECT_EQ(tensor.view().name, "t");
  }
}

}  // namespace
}  // namespace ballast
