#include "quantize/products.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::instruction_sets;
using test::OnlyInstructionSet;

// Matrices with gaps between the rows: those of `left` and `sums` grow like a triangle's, those of `right` keep their distance.
struct Case {
  std::size_t rows;
  std::size_t terms;
  std::size_t width;
  std::size_t stride;
  std::vector<float> left;
  std::vector<float> right;
  std::vector<float> sums;

  Case(std::size_t row_count, std::size_t term_count, std::size_t column_count)
      : rows(row_count),
        terms(term_count),
        width(column_count),
        stride(column_count + 3),
        left(at(row_count, term_count)),
        right(term_count * stride),
        sums(at(row_count, column_count)) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&left, &right, &sums}) {
      for (float& value : *values) value = normal(random);
    }
  }

  static std::size_t at(std::size_t row, std::size_t count) { return row * (count + 1) + row * row / 2; }

  std::vector<float> by_plain_loop() const {
    std::vector<float> result = sums;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t x = 0; x < width; ++x) {
        for (std::size_t i = 0; i < terms; ++i) {
          const float product = left[at(r, terms) + i] * right[i * stride + x];
          result[at(r, width) + x] += product;
        }
      }
    }
    return result;
  }

  std::vector<float> by_kernel() const {
    std::vector<float> result = sums;
    std::vector<const float*> left_rows;
    std::vector<float*> sum_rows;
    for (std::size_t r = 0; r < rows; ++r) {
      left_rows.push_back(left.data() + at(r, terms));
      sum_rows.push_back(result.data() + at(r, width));
    }
    add_products(
        {.left = left_rows, .right = right.data(), .right_stride = stride, .terms = terms, .sums = sum_rows, .width = width});
    return result;
  }
};

TEST(Products, EveryInstructionSetGivesThePlainLoopsBits) {
  for (const std::size_t rows : {1U, 3U, 4U, 9U}) {
    for (const std::size_t terms : {0U, 1U, 7U, 300U, 600U}) {
      for (const std::size_t width : {1U, 4U, 15U, 16U, 64U, 100U, 131U}) {
        const Case matrices(rows, terms, width);
        const std::vector<float> expected = matrices.by_plain_loop();
        for (const std::int64_t target : instruction_sets()) {
          const OnlyInstructionSet only(target);
          ASSERT_EQ(matrices.by_kernel(), expected)
              << hwy::TargetName(target) << ", " << rows << " rows, " << terms << " terms, width " << width;
        }
      }
    }
  }
}

// In floats 1e8 + 1 is 1e8, so what is left depends on the order.
TEST(Products, AddsTheFirstTermFirst) {
  const std::vector<float> left{1e8F, 1, -1e8F, 1};
  const std::vector<float> right(4, 1.0F);
  float sum = 0;
  const float* left_row = left.data();
  float* sum_row = &sum;
  add_products({.left = std::span(&left_row, 1),
                .right = right.data(),
                .right_stride = 1,
                .terms = 4,
                .sums = std::span(&sum_row, 1),
                .width = 1});
  EXPECT_EQ(sum, 1);
}

}  // namespace
}  // namespace ballast
