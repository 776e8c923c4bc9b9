#include <numeric>

#include <gmock/gmock.h>

#include <ballast/convert_model.h>
#include <ballast/weights.h>

#include "model/state.h"
#include "tests/support/counting_source.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::TempDir;
using test::TensorText;
using Dims = std::vector<std::uint64_t>;

// Blocks of 64 KiB, the smallest: rows that fit exactly, or do not, or only when alone; and rows longer than a block.
const std::vector<Dims> kShapes{{300, 1000},    {9, 8192},  {9, 8193},  {5, 16383}, {5, 16384}, {5, 16385},
                                {3, 32768},     {3, 32769}, {2, 50000}, {1, 70001}, {70001, 1}, {65, 129},
                                {3, 5, 7, 101}, {17},       {1},        {40000}};

std::uint64_t product(const Dims& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

std::string name_of(const Dims& shape) { return fmt::format("m{}.weight", fmt::join(shape, "x")); }

// Bytes that are no NaN in any dtype of the test.
std::string counted_bytes(std::uint64_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i % 113);
  return bytes;
}

class ConvertBlocks : public testing::Test {
 protected:
  Result<Model> converted(const Model& model, DType dtype) const {
    ConvertOptions options{.dtype = dtype, .sink = {.sync = false}, .work = {.memory_limit = 1 << 20}};
    options.work.threads = 4;
    const std::string out = dir_.path("out");
    if (auto done = convert_model(model, out, options); !done) return std::unexpected(done.error());
    return Model::open(out);
  }

  // Every weight of the output has the values that the input has when it is read whole.
  void expect_equal(const Weights& weights, const Result<Model>& out, DType dtype) const {
    ASSERT_TRUE(out) << out.error().message;
    for (const Weight& weight : weights.weights()) {
      const auto expected = weights.read(weight.name, dtype);
      const auto found = out->read(weight.name);
      ASSERT_TRUE(expected && found);
      EXPECT_EQ(found->dtype(), dtype);
      EXPECT_TRUE(std::ranges::equal(found->bytes(), expected->bytes())) << weight.name;
    }
  }

  TempDir dir_;
};

TEST_F(ConvertBlocks, FloatsAreEqualAcrossBlocks) {
  std::vector<TensorText> tensors;
  for (const Dims& shape : kShapes) tensors.emplace_back(name_of(shape), DType::kBF16, shape, counted_bytes(product(shape) * 2));
  tensors.emplace_back("scalar", DType::kBF16, Dims{}, "\x80\x3F");
  tensors.emplace_back("empty", DType::kBF16, Dims{0, 5});
  tensors.emplace_back("no columns", DType::kBF16, Dims{5, 0});
  const std::string path = dir_.write("in/model.safetensors", test::safetensors(tensors));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kF8E4M3}) {
    const auto model = Model::open(path);
    ASSERT_TRUE(model) << model.error().message;
    const auto weights = Weights::open(path);
    ASSERT_TRUE(weights) << weights.error().message;
    expect_equal(*weights, converted(*model, dtype), dtype);
  }
}

TEST_F(ConvertBlocks, DecodedWeightsAreEqualAcrossBlocks) {
  std::vector<TensorText> tensors;
  for (const Dims& shape : kShapes) {
    if (shape.size() != 2) continue;
    const Dims blocks{(shape[0] + 127) / 128, (shape[1] + 127) / 128};
    std::vector<float> scales(product(blocks));
    std::iota(scales.begin(), scales.end(), 1.0F);
    tensors.emplace_back(name_of(shape), DType::kF8E4M3, shape, counted_bytes(product(shape)));
    tensors.emplace_back(name_of(shape) + "_scale_inv", DType::kF32, blocks, test::raw(scales));
  }
  dir_.write("in/model.safetensors", test::safetensors(tensors));
  dir_.write("in/config.json",
             R"({"dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    auto opened = Weights::open(dir_.path("in"));
    const auto weights = Weights::open(dir_.path("in"));
    ASSERT_TRUE(opened && weights);
    const auto model = decode(*std::move(opened), dtype);
    ASSERT_TRUE(model) << model.error().message;
    expect_equal(*weights, converted(*model, dtype), dtype);
  }
}

// Rows that a block cuts in two would be decoded twice.
TEST_F(ConvertBlocks, LongRowsAreDecodedOnce) {
  const Dims shape{24, 300'000};
  const std::string file = test::safetensors({TensorText{"a.weight", DType::kF8E4M3, shape, counted_bytes(product(shape))},
                                              TensorText{"a.weight_scale", DType::kF32, {}, test::raw({0.5F})}});
  std::atomic<std::uint64_t> count = 0;
  auto stored = ModelAccess::open_virtual(std::make_unique<test::CountingSource>(file, count), "m", std::nullopt, std::nullopt,
                                          {}, std::nullopt);
  ASSERT_TRUE(stored) << stored.error().message;
  auto weights = Weights::from_model(*std::move(stored));
  ASSERT_TRUE(weights) << weights.error().message;
  const auto model = decode(*std::move(weights), DType::kBF16);
  ASSERT_TRUE(model) << model.error().message;
  count = 0;
  const auto done = convert_model(*model, dir_.path("out"), {.dtype = DType::kBF16, .sink = {.sync = false}});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_GE(count, product(shape));
  EXPECT_LE(count, file.size() + file.size() / 10);
}

}  // namespace
}  // namespace ballast
