#include <ballast/quantize.h>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;

struct Matrix {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;

  TensorView view() const {
    return {.name = "w", .dtype = DType::kF32, .shape = shape, .bytes = std::as_bytes(std::span(values))};
  }
};

Matrix waves(std::vector<std::uint64_t> shape) {
  std::size_t count = 1;
  for (const std::uint64_t dim : shape) count *= dim;
  Matrix matrix{.shape = std::move(shape), .values = {}};
  for (std::size_t i = 0; i < count; ++i) matrix.values.push_back(std::sin(static_cast<float>(i) * 0.7F));
  return matrix;
}

TEST(QuantizeLayer, RoundTripIsClose) {
  for (const QuantizeFormat format : {QuantizeFormat::kParquet, QuantizeFormat::kMlx}) {
    const auto layer = quantize_layer(waves({10, 3, 64}).view(), {.bits = 8, .group_size = 32, .format = format});
    ASSERT_TRUE(layer) << layer.error().message;
    EXPECT_EQ(layer->columns, format == QuantizeFormat::kMlx ? 64U : 192U);
    EXPECT_EQ(layer->rows * layer->columns, 1920U);
    EXPECT_EQ(layer->packed.size(), 1920U);
    const std::vector<float> back = layer->dequantize();
    const std::vector<float> values = waves({10, 3, 64}).values;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(back[i] - values[i])));
    EXPECT_LT(worst, 0.01);
    EXPECT_NEAR(layer->quality.max_error, worst, 1e-7);
    EXPECT_GT(layer->quality.cosine_similarity, 0.9999);
  }
}

TEST(QuantizeLayer, ImportantColumnsAreNearer) {
  const Matrix matrix = waves({64, 64});
  std::vector<float> importance(64, 0.01F);
  importance[7] = 100;
  const auto error_of_column = [&](const QuantizedLayer& layer) {
    const std::vector<float> back = layer.dequantize();
    double sum = 0;
    for (std::size_t row = 0; row < 64; ++row) sum += std::pow(back[row * 64 + 7] - matrix.values[row * 64 + 7], 2);
    return sum;
  };
  const auto plain = quantize_layer(matrix.view(), {.bits = 2});
  const auto weighted = quantize_layer(matrix.view(), {.bits = 2, .importance = importance});
  EXPECT_LT(error_of_column(*weighted), 0.1 * error_of_column(*plain));
}

TEST(QuantizeLayer, Refuses) {
  const Matrix matrix = waves({4, 48});
  EXPECT_TRUE(fails(quantize_layer(matrix.view(), {.group_size = 32, .format = QuantizeFormat::kMlx}), Errc::kUnsupported,
                    "tensor 'w': 48 columns are not a multiple of group_size 32, as MLX requires"));
  EXPECT_TRUE(fails(quantize_layer(matrix.view(), {.importance = {1, 2}}), Errc::kInvalidArgument,
                    "tensor 'w': importance has 2 values, the tensor has 48 columns"));
  EXPECT_TRUE(fails(quantize_layer(waves({48}).view()), Errc::kInvalidArgument, "tensor 'w': shape [48] is not a matrix"));
  Matrix bad = waves({4, 48});
  bad.values[9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(fails(quantize_layer(bad.view()), Errc::kCorrupt, "tensor 'w': some values are NaN or infinite"));
  TensorView cut = matrix.view();
  cut.bytes = cut.bytes.first(100);
  EXPECT_TRUE(fails(quantize_layer(cut), Errc::kInvalidArgument, "tensor 'w': 100 bytes for 192 values of F32"));
  EXPECT_FALSE(quantize_layer(matrix.view(), {.bits = 7}));
}

}  // namespace
}  // namespace ballast
