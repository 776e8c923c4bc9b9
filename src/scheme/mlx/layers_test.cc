#include "scheme/mlx/layers.h"

#include <gmock/gmock.h>

#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::TensorText;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum DType;

// Keeps the bytes that its model borrows.
class Found {
 public:
  explicit Found(const std::vector<TensorText>& tensors, const MlxQuantization& config = {})
      : bytes_(test::safetensors(tensors)), model_(Model::from_bytes(test::as_bytes(bytes_), "m")) {
    if (!model_) throw std::runtime_error(model_.error().message);
    layers = find_mlx_layers(*model_, config);
  }

  const Model& model() const { return *model_; }
  Result<std::vector<MlxLayer>> layers;

 private:
  std::string bytes_;
  Result<Model> model_;
};

MlxQuantization config(unsigned bits, unsigned group_size, QuantizationMode mode = QuantizationMode::kAffine) {
  return {.defaults = {.bits = bits, .group_size = group_size, .mode = mode}, .per_tensor = {}, .patterns = {}};
}

testing::AssertionResult refused(const std::vector<TensorText>& tensors, const MlxQuantization& config, Errc code,
                                 std::string_view message) {
  return fails(Found(tensors, config).layers, code, message);
}

TEST(MlxLayers, AreWhatHasScalesByName) {
  const Found found({{"z.weight", kU32, {2, 8}},
                     {"z.scales", kBF16, {2, 1}},
                     {"z.biases", kBF16, {2, 1}},
                     {"norm.weight", kBF16, {64}},
                     {"bare", kU8, {3, 5, 32}},
                     {"bare.scales", kF32, {3, 5, 1}},
                     {"z.bias", kBF16, {2}}});
  ASSERT_TRUE(found.layers) << found.layers.error().message;
  ASSERT_EQ(found.layers->size(), 2);
  const MlxLayer& bare = found.layers->at(0);
  EXPECT_EQ(bare.name, "bare");
  EXPECT_EQ(bare.packed, found.model().find("bare"));
  EXPECT_EQ(bare.biases, nullptr);
  EXPECT_EQ(bare.dtype, kF32);
  EXPECT_THAT(bare.shape, ElementsAre(3, 5, 64));
  EXPECT_EQ(bare.rows(), 15);
  EXPECT_EQ(bare.scale_bytes(), 4);
  const MlxLayer& z = found.layers->at(1);
  EXPECT_EQ(z.name, "z");
  EXPECT_EQ(z.packed, found.model().find("z.weight"));
  EXPECT_EQ(z.scales, found.model().find("z.scales"));
  EXPECT_EQ(z.biases, found.model().find("z.biases"));
  EXPECT_EQ(z.dtype, kBF16);
  EXPECT_THAT(z.shape, ElementsAre(2, 64));
}

TEST(MlxLayers, WeightIsPreferredToTheBareName) {
  const Found found({{"a", kU8, {1}}, {"a.weight", kU32, {1, 8}}, {"a.scales", kF16, {1, 1}}});
  ASSERT_TRUE(found.layers) << found.layers.error().message;
  EXPECT_EQ(found.layers->at(0).packed, found.model().find("a.weight"));
}

TEST(MlxLayers, ColumnsFollowFromTheBits) {
  for (const auto& [width, columns] : {std::pair(2U, 96U), {3U, 64U}, {4U, 48U}, {6U, 32U}, {8U, 24U}}) {
    const Found found({{"a.weight", kU32, {1, 6}}, {"a.scales", kF16, {1, (columns + 31) / 32}}}, config(width, 32));
    ASSERT_TRUE(found.layers) << found.layers.error().message;
    EXPECT_THAT(found.layers->at(0).shape, ElementsAre(1, columns));
  }
  const Found found({{"a.weight", kU32, {1, 5}}, {"a.scales", kF16, {1, 1}}}, config(5, 32));
  EXPECT_THAT(found.layers.value().at(0).shape, ElementsAre(1, 32));
}

TEST(MlxLayers, ModelWithoutScalesHasNone) {
  EXPECT_THAT(Found({{"a.weight", kF32, {1, 8}}, {"b.weight", kU32, {8}}}).layers.value(), IsEmpty());
  EXPECT_THAT(Found({}).layers.value(), IsEmpty());
}

TEST(MlxLayers, CodesWithoutScalesAreCorrupt) {
  EXPECT_TRUE(
      refused({{"a.weight", kU32, {1, 8}}}, config(4, 64), Errc::kCorrupt, "m: tensor 'a.weight': 'a.scales' is missing"));
}

TEST(MlxLayers, SizesThatDisagreeAreCorrupt) {
  const MlxQuantization usual = config(4, 64);
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 4}}, {"a.scales", kF16, {2, 2}}}, usual, Errc::kCorrupt,
                      "m: tensor 'a.scales': the scales are [2, 2], expected [2, 1]: U32 [2, 4] is 32 columns of 4 bits, in "
                      "groups of 64"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 4}}, {"a.scales", kF16, {3, 1}}}, usual, Errc::kCorrupt,
                      "m: tensor 'a.scales': the scales are [3, 1], expected [2, 1]: U32 [2, 4] is 32 columns of 4 bits, in "
                      "groups of 64"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 4}}, {"a.scales", kF16, {2}}}, usual, Errc::kCorrupt,
                      "m: tensor 'a.scales': the scales are [2], expected [2, 1]: U32 [2, 4] is 32 columns of 4 bits, in "
                      "groups of 64"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 16}}, {"a.scales", kF16, {2, 2}}}, config(8, 64), Errc::kCorrupt,
                      "m: tensor 'a.scales': the scales are [2, 2], expected [2, 1]: U32 [2, 16] is 64 columns of 8 bits, in "
                      "groups of 64"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 4}}, {"a.scales", kF16, {2, 1}}}, config(3, 64), Errc::kCorrupt,
                      "m: tensor 'a.weight': rows of 4 U32 are not a whole number of 3-bit values"));
}

TEST(MlxLayers, EmptyOnesAreCorrupt) {
  EXPECT_TRUE(refused({{"a.weight", kU32, {0, 4}}, {"a.scales", kF16, {0, 1}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.weight': has scales, but shape [0, 4] is empty"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 0}}, {"a.scales", kF16, {2, 0}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.weight': has scales, but shape [2, 0] is empty"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {}}, {"a.scales", kF16, {}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.weight': has scales, but no dimensions"));
}

TEST(MlxLayers, CodesOfOtherDtypesAreUnsupported) {
  EXPECT_TRUE(refused({{"a.weight", kI32, {2, 8}}, {"a.scales", kF16, {2, 1}}}, {}, Errc::kUnsupported,
                      "m: tensor 'a.weight': has scales, but packed weights are U32 or U8, not I32"));
}

TEST(MlxLayers, ScalesThatContradictTheModeAreCorrupt) {
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kF64, {2, 1}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.scales': affine scales are F32, F16 or BF16, not F64"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kF16, {2, 2}}}, config(4, 32, QuantizationMode::kMxfp4),
                      Errc::kCorrupt, "m: tensor 'a.scales': mxfp4 scales are U8, not F16"));
}

TEST(MlxLayers, BiasesThatDifferFromTheScalesAreCorrupt) {
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kF16, {2, 1}}, {"a.biases", kBF16, {2, 1}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.biases': the biases are BF16 [2, 1], the scales F16 [2, 1]"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kF16, {2, 1}}, {"a.biases", kF16, {1, 2}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.biases': the biases are F16 [1, 2], the scales F16 [2, 1]"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kU8, {2, 4}}, {"a.biases", kU8, {2, 4}}},
                      config(4, 16, QuantizationMode::kNvfp4), Errc::kCorrupt, "m: tensor 'a.biases': nvfp4 has no biases"));
}

TEST(MlxLayers, OrphansAreNamed) {
  EXPECT_TRUE(refused({{"b.weight", kU32, {2, 8}}, {"a.scales", kF16, {2, 1}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.scales': 'a.weight' or 'a' is missing"));
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.biases", kF16, {2, 1}}}, {}, Errc::kCorrupt,
                      "m: tensor 'a.biases': 'a.scales' is missing"));
}

TEST(MlxLayers, ScalesOfWhatIsNotQuantizedAreCorrupt) {
  MlxQuantization none;
  none.per_tensor.emplace("a", std::nullopt);
  EXPECT_TRUE(refused({{"a.weight", kU32, {2, 8}}, {"a.scales", kF16, {2, 1}}}, none, Errc::kCorrupt,
                      "m: tensor 'a.scales': the config says that 'a.weight' is unquantized"));
}

TEST(MlxLayers, EveryModeIsFound) {
  const Found found({{"a.weight", kU32, {2, 8}}, {"a.scales", kU8, {2, 4}}}, config(4, 16, QuantizationMode::kNvfp4));
  ASSERT_TRUE(found.layers) << found.layers.error().message;
  EXPECT_EQ(found.layers->at(0).dtype, kBF16);
  EXPECT_EQ(found.layers->at(0).quantization.mode, QuantizationMode::kNvfp4);
}

TEST(MlxLayers, RowsAreReadAndDequantized) {
  const Found found({{"a.weight", kU32, {3, 1}, test::raw<std::uint32_t>({0x00000010, 0x00000032, 0x00000054})},
                     {"a.scales", kF32, {3, 1}, test::raw({1.0F, 2.0F, 3.0F})},
                     {"a.biases", kF32, {3, 1}, test::raw({10.0F, 20.0F, 30.0F})}});
  std::vector<float> out(16);
  ASSERT_TRUE(read_mlx_rows(found.model(), found.layers.value().at(0), 1, 2, kF32, std::as_writable_bytes(std::span(out))));
  EXPECT_THAT(out, ElementsAre(24, 26, 20, 20, 20, 20, 20, 20, 42, 45, 30, 30, 30, 30, 30, 30));
}

}  // namespace
}  // namespace ballast
