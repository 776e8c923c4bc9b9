#include "scheme/arranged_source.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> counting(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string bytes_of(const std::vector<float>& values) { return test::to_text(std::as_bytes(std::span(values))); }

class Arranging : public testing::Test {
 protected:
  Arranging()
      : model_(*Model::open(
            dir_.write("m.safetensors", test::safetensors({{"a", DType::kF32, {2, 3, 4}, bytes_of(counting(24))},
                                                           {"b", DType::kF32, {2, 3, 4}, bytes_of(counting(24, 100))},
                                                           {"large", DType::kF32, {1500, 1000}, bytes_of(counting(1'500'000))},
                                                           {"tiny", DType::kF4, {2, 4}, std::string(4, '\x21')}})))) {}

  StridedView whole(std::string_view name) const { return StridedView::whole(model_.find(name)->shape); }

  ArrangedTensor one(std::string name, std::string_view of, StridedView view) const {
    return {.name = std::move(name), .parts = {model_.find(of)}, .view = std::move(view)};
  }

  test::TempDir dir_;
  Model model_;
};

TEST_F(Arranging, RenamesTransposesSplitsAndStacks) {
  std::vector<ArrangedTensor> tensors{one("renamed", "tiny", whole("tiny")), one("transposed", "a", whole("a").transposed()),
                                      one("second half", "a", whole("a").every(1, 1, 1, 2)),
                                      one("odd", "a", whole("a").every(2, 1, 2, 2)),
                                      one("odd transposed", "a", whole("a").every(2, 1, 2, 2).transposed())};
  tensors.push_back({.name = "stack", .parts = {model_.find("b"), model_.find("a")}, .view = whole("a"), .stacked = true});
  const auto arranged = arrange(model_, std::move(tensors));
  ASSERT_TRUE(arranged) << arranged.error().message;
  EXPECT_EQ(test::to_text(arranged->read("renamed")->bytes()), std::string(4, '\x21'));
  EXPECT_THAT(arranged->find("transposed")->shape, ElementsAre(2, 4, 3));
  EXPECT_THAT(*arranged->read<float>("transposed"),
              ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23));
  EXPECT_THAT(*arranged->read<float>("second half"), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23));
  EXPECT_THAT(*arranged->read<float>("odd"), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23));
  EXPECT_THAT(*arranged->read<float>("odd transposed"), ElementsAre(1, 5, 9, 3, 7, 11, 13, 17, 21, 15, 19, 23));
  EXPECT_THAT(arranged->find("stack")->shape, ElementsAre(2, 2, 3, 4));
  const auto stack = *arranged->read<float>("stack");
  EXPECT_EQ(stack[0], 100);
  EXPECT_EQ(stack[47], 23);
}

TEST_F(Arranging, ReadsAnyPartOfALargeTransposedTensor) {
  std::vector<ArrangedTensor> tensors{one("t", "large", whole("large").transposed())};
  const auto arranged = arrange(model_, std::move(tensors));
  ASSERT_TRUE(arranged) << arranged.error().message;
  for (const std::uint64_t first : {0U, 1U, 1499U, 698'999U, 699'000U, 1'048'575U, 1'497'000U}) {
    std::vector<float> values(3000);
    ASSERT_TRUE(arranged->read_into("t", first * sizeof(float), std::as_writable_bytes(std::span(values))));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      const std::uint64_t at = first + i;
      ASSERT_EQ(values[i], static_cast<float>(at % 1500 * 1000 + at / 1500)) << at;
    }
  }
}

TEST_F(Arranging, HasNoViews) {
  std::vector<ArrangedTensor> tensors{one("t", "a", whole("a"))};
  const auto arranged = arrange(model_, std::move(tensors));
  const auto view = arranged->view("t");
  ASSERT_FALSE(view);
  EXPECT_THAT(view.error().message, HasSubstr("arranged on reading, so there are no views"));
}

TEST_F(Arranging, RefusesToMovePartsOfBytes) {
  std::vector<ArrangedTensor> tensors{one("t", "tiny", whole("tiny").transposed())};
  const auto arranged = arrange(model_, std::move(tensors));
  ASSERT_FALSE(arranged);
  EXPECT_EQ(arranged.error().code, Errc::kUnsupported);
  EXPECT_THAT(arranged.error().message, HasSubstr("tensor 'tiny': cannot rearrange values of F4"));
}

TEST_F(Arranging, RefusesTwoTensorsOfOneName) {
  std::vector<ArrangedTensor> tensors{one("t", "a", whole("a")), one("t", "b", whole("b"))};
  const auto arranged = arrange(model_, std::move(tensors));
  ASSERT_FALSE(arranged);
  EXPECT_THAT(arranged.error().message, HasSubstr("'t'"));
}

}  // namespace
}  // namespace ballast
