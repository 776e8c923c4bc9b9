#include <ballast/diff.h>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::one_tensor;
using test::raw;
using testing::ElementsAre;

DiffReport diff(const std::string& a, const std::string& b) {
  const auto first = Model::from_bytes(test::as_bytes(a));
  const auto second = Model::from_bytes(test::as_bytes(b));
  if (!first || !second) throw std::runtime_error("a file of the test is wrong");
  return diff_models(*first, *second).value();
}

TEST(Diff, TheSameIsEqual) {
  const std::string file = one_tensor(DType::kF32, "[2]", raw<float>({1, NAN}));
  EXPECT_TRUE(diff(file, file).equal());
  EXPECT_EQ(diff(file, file).same, 1U);
}

TEST(Diff, CodesCountWithinADType) {
  const auto found = diff(one_tensor(DType::kF32, "[4]", raw<float>({0, 1, 2, INFINITY})),
                          one_tensor(DType::kF32, "[4]", raw<float>({-0.0F, 1, 2.5F, 3})));
  ASSERT_EQ(found.changed.size(), 1U);
  ASSERT_TRUE(found.changed[0].values);
  EXPECT_EQ(found.changed[0].values->count, 3U);
  EXPECT_EQ(found.changed[0].values->first, 0U);
  EXPECT_EQ(found.changed[0].values->values, 4U);
  EXPECT_EQ(found.changed[0].values->max_difference, INFINITY);
}

TEST(Diff, WideIntegersAreComparedExactly) {
  const auto next = diff(one_tensor(DType::kI64, "[1]", raw<std::int64_t>({(1LL << 53) + 1})),
                         one_tensor(DType::kI64, "[1]", raw<std::int64_t>({1LL << 53})));
  EXPECT_EQ(next.changed.at(0).values->max_difference, 1);
  const auto far = diff(one_tensor(DType::kI64, "[1]", raw<std::int64_t>({INT64_MIN})),
                        one_tensor(DType::kI64, "[1]", raw<std::int64_t>({INT64_MAX})));
  EXPECT_EQ(far.changed.at(0).values->max_difference, 0x1p64);
}

TEST(Diff, NumbersCountBetweenDTypes) {
  const auto found = diff(one_tensor(DType::kF32, "[3]", raw<float>({1, NAN, 3})),
                          one_tensor(DType::kF16, "[3]", raw<std::uint16_t>({0x3c00, 0x7e01, 0x4000})));
  ASSERT_EQ(found.changed.size(), 1U);
  EXPECT_EQ(found.changed[0].dtype_b, DType::kF16);
  EXPECT_EQ(found.changed[0].values->count, 1U);
  EXPECT_EQ(found.changed[0].values->first, 2U);
  EXPECT_EQ(found.changed[0].values->max_difference, 1);
}

TEST(Diff, SmallAndComplexValues) {
  const auto nibbles = diff(one_tensor(DType::kF4, "[4]", "\x21\x43"), one_tensor(DType::kF4, "[4]", "\x21\x53"));
  EXPECT_EQ(nibbles.changed.at(0).values->count, 1U);
  EXPECT_EQ(nibbles.changed.at(0).values->first, 3U);
  EXPECT_EQ(nibbles.changed.at(0).values->max_difference, 1);
  const auto complex =
      diff(one_tensor(DType::kC64, "[2]", raw<float>({1, 2, 3, 4})), one_tensor(DType::kC64, "[2]", raw<float>({1, 2, 3, 5})));
  EXPECT_EQ(complex.changed.at(0).values->count, 1U);
  EXPECT_EQ(complex.changed.at(0).values->first, 1U);
  const auto packed = diff(one_tensor(DType::kF6E2M3, "[4]", "abc"), one_tensor(DType::kF6E2M3, "[4]", "abd"));
  EXPECT_EQ(packed.changed.at(0).values->count, 1U);
  EXPECT_TRUE(std::isnan(packed.changed.at(0).values->max_difference));
  EXPECT_FALSE(diff(one_tensor(DType::kF6E2M3, "[4]", "abc"), one_tensor(DType::kU8, "[4]", "abcd")).changed.at(0).values);
  EXPECT_FALSE(diff(one_tensor(DType::kC64, "[1]", raw<float>({1, 0})), one_tensor(DType::kF32, "[1]", raw<float>({1})))
                   .changed.at(0)
                   .values);
}

TEST(Diff, NamesShapesAndMetadata) {
  const std::string a =
      test::safetensors(R"({"__metadata__":{"k":"1","same":"s"},"gone":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("t":{"dtype":"U8","shape":[2,1],"data_offsets":[1,3]}})",
                        "abc");
  const std::string b =
      test::safetensors(R"({"__metadata__":{"same":"s","new":"2"},"t":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},)"
                        R"("u":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                        "bc");
  const auto found = diff(a, b);
  EXPECT_THAT(found.only_a, ElementsAre("gone"));
  EXPECT_THAT(found.only_b, ElementsAre("u"));
  EXPECT_THAT(found.metadata, ElementsAre("k", "new"));
  ASSERT_EQ(found.changed.size(), 1U);
  EXPECT_FALSE(found.changed[0].values);
  EXPECT_FALSE(found.equal());
}

TEST(Diff, FindsTheFirstDifferenceOfManyBlocks) {
  std::string a(3'000'000, '\1');
  std::string b = a;
  b[2'999'999] = '\3';
  b[1'000'001] = '\2';
  const auto found = diff(one_tensor(DType::kU8, "[3000000]", a), one_tensor(DType::kU8, "[3000000]", b));
  EXPECT_EQ(found.changed.at(0).values->count, 2U);
  EXPECT_EQ(found.changed.at(0).values->first, 1'000'001U);
  EXPECT_EQ(found.changed.at(0).values->max_difference, 2);
}

}  // namespace
}  // namespace ballast
