#include <ballast/quantized_weights.h>

#include <filesystem>
#include <random>

#include <gmock/gmock.h>

#include <ballast/convert.h>
#include <ballast/quantize.h>

#include "quantize/packing.h"
#include "quantize/rows.h"
#include "tests/support/quantized_weights.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::load;
using test::names;
using test::OneAllocation;
using test::raw;
using test::TempDir;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum DType;

static_assert(!std::is_copy_constructible_v<QuantizedWeights>);
static_assert(std::is_nothrow_move_constructible_v<QuantizedWeights>);

// U32 [2, 4] of 4 bits is 2 x 32, which fill half a group of 64.
void write_half_a_group(const TempDir& dir) {
  dir.write("quantization_config.json",
            R"({"bits": 4, "group_size": 64, "per_tensor": {"proj.weight": {"bits": 4, "group_size": 64}}})");
  std::string codes;
  for (int i = 0; i < 8; ++i) codes += raw<std::uint32_t>({0xaaaabbbb});
  dir.write("model.safetensors", test::safetensors({{"proj.weight", kU32, {2, 4}, codes},
                                                    {"proj.scales", kF16, {2, 1}, raw<std::uint16_t>({0x3c00, 0x3c00})},
                                                    {"proj.biases", kF16, {2, 1}, raw<std::uint16_t>({0, 0})}}));
}

TEST(QuantizedWeights, GroupShorterThanItsSizeIsLoaded) {
  const TempDir dir;
  write_half_a_group(dir);
  const QuantizedWeights weights = load(dir.path());
  ASSERT_EQ(weights.weights().size(), 1);
  const QuantizedWeight& proj = weights.weights().front();
  EXPECT_EQ(proj.name, "proj");
  EXPECT_EQ(proj.packed.name, "proj.weight");
  EXPECT_THAT(proj.shape, ElementsAre(2, 32));
  EXPECT_EQ(proj.elements(), 64);
  EXPECT_EQ(proj.groups(), 1);
  EXPECT_EQ(proj.dtype, kF16);
  EXPECT_EQ(proj.bits, 4);
  EXPECT_EQ(proj.group_size, 64);
  EXPECT_EQ(proj.mode, QuantizationMode::kAffine);
  EXPECT_EQ(proj.packed.bytes.size(), 32);
  EXPECT_EQ(proj.scales.bytes.size(), 4);
  ASSERT_TRUE(proj.biases);
  EXPECT_EQ(proj.biases->bytes.size(), 4);
  EXPECT_THAT(weights.others(), IsEmpty());

  const auto values = weights.dequantize("proj", kF16);
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_EQ(values->name(), "proj.weight");
  EXPECT_THAT(values->shape(), ElementsAre(2, 32));
  std::string expected;
  for (int i = 0; i < 8; ++i) {
    expected += raw<std::uint16_t>({0x4980, 0x4980, 0x4980, 0x4980, 0x4900, 0x4900, 0x4900, 0x4900});  // 11 and 10
  }
  EXPECT_EQ(to_text(values->bytes()), expected);
}

// Shards, a config.json, layers of different widths, and tensors that are not quantized.
void write_model(const TempDir& dir) {
  dir.write("config.json", R"({"quantization": {"bits": 4, "group_size": 32, "layers.1": {"bits": 8}}})");
  dir.write("model-00001-of-00002.safetensors",
            test::safetensors({{"norm", kBF16, {3}, "abcdef"},
                               {"layers.1.weight", kU32, {1, 1}, raw<std::uint32_t>({0xff030201})},
                               {"layers.0.scales", kF32, {1, 1}, raw({0.5F})}}));
  dir.write("model-00002-of-00002.safetensors",
            test::safetensors({{"layers.1.scales", kF32, {1, 1}, raw({2.0F})},
                               {"layers.0.biases", kF32, {1, 1}, raw({-1.0F})},
                               {"layers.0.weight", kU32, {1, 1}, raw<std::uint32_t>({0x76543210})},
                               {"empty", kF32, {0}}}));
}

TEST(QuantizedWeights, AreGroupedAcrossShardsInTheOrderOfTheirNames) {
  const TempDir dir;
  write_model(dir);
  const QuantizedWeights weights = load(dir.path());
  EXPECT_THAT(names(weights), ElementsAre("layers.0", "layers.1"));
  EXPECT_EQ(weights.weights()[1].bits, 8);
  EXPECT_FALSE(weights.weights()[1].biases);
  EXPECT_EQ(weights.quantization().defaults.group_size, 32);
  ASSERT_EQ(weights.others().size(), 2);
  EXPECT_EQ(weights.others()[0].name, "empty");
  EXPECT_EQ(weights.others()[1].name, "norm");
  EXPECT_EQ(to_text(weights.others()[1].bytes), "abcdef");
  EXPECT_EQ(weights.tensors().tensors().size(), 7);

  const auto four = weights.dequantize("layers.0", kF32, 1);
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_EQ(to_text(four->bytes()), raw({-1.0F, -0.5F, 0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 2.5F}));
  const auto eight = weights.dequantize("layers.1.weight", kBF16);
  ASSERT_TRUE(eight) << eight.error().message;
  EXPECT_EQ(to_text(eight->bytes()), raw<std::uint16_t>({0x4000, 0x4080, 0x40c0, 0x43ff}));
}

TEST(QuantizedWeights, AreFoundByTheirNameOrThatOfTheirCodes) {
  const TempDir dir;
  write_model(dir);
  const QuantizedWeights weights = load(dir.path());
  EXPECT_EQ(weights.find("layers.0"), weights.weights().data());
  EXPECT_EQ(weights.find("layers.0.weight"), weights.weights().data());
  EXPECT_EQ(weights.find("layers.0.scales"), nullptr);
  EXPECT_EQ(weights.find("layers.2"), nullptr);
  EXPECT_EQ(weights.find("norm"), nullptr);
  EXPECT_EQ(weights.find(""), nullptr);
}

TEST(QuantizedWeights, OutliveTheFiles) {
  const TempDir dir;
  write_model(dir);
  QuantizedWeights weights = load(dir.path());
  std::filesystem::remove_all(dir.path());
  const QuantizedWeights moved = std::move(weights);
  EXPECT_THAT(names(moved), ElementsAre("layers.0", "layers.1"));
  EXPECT_THAT(moved.weights()[0].shape, ElementsAre(1, 8));
  EXPECT_TRUE(moved.dequantize("layers.0", kF16));
}

TEST(QuantizedWeights, LieInTheCallersMemory) {
  const TempDir dir;
  write_model(dir);
  OneAllocation allocator;
  {
    const QuantizedWeights weights = load(dir.path(), {.allocator = &allocator});
    for (const QuantizedWeight& weight : weights.weights()) {
      EXPECT_GE(weight.packed.bytes.data(), allocator.begin);
      EXPECT_LE(weight.scales.bytes.data() + weight.scales.bytes.size(), allocator.end);
    }
    EXPECT_EQ(allocator.allocations, 1);
  }
  EXPECT_EQ(allocator.frees, 1);
  allocator.full = true;
  const auto failed = load_quantized_weights(dir.path(), {.allocator = &allocator});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kUnsupported);
  EXPECT_THAT(failed.error().message, testing::HasSubstr(": cannot allocate "));
}

TEST(QuantizedWeights, ProgressCanCancel) {
  const TempDir dir;
  write_model(dir);
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  EXPECT_TRUE(fails(load_quantized_weights(dir.path(), {.work = {.progress = stop}}), Errc::kCancelled, "cancelled"));
}

TEST(QuantizedWeights, ManyRowsAreTheSameOnAnyNumberOfThreads) {
  const TempDir dir;
  constexpr std::uint64_t kRows = 3000;
  std::string codes;
  std::string scales;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    for (std::uint32_t i = 0; i < 32; ++i) codes += raw<std::uint32_t>({row * 2654435761U + i * 40503U});
    for (std::uint32_t i = 0; i < 4; ++i) scales += raw({static_cast<float>(row) + static_cast<float>(i) / 8});
  }
  dir.write("config.json", R"({"quantization": {"bits": 4, "group_size": 64}})");
  dir.write("model.safetensors",
            test::safetensors({{"a.weight", kU32, {30, 100, 32}, codes}, {"a.scales", kF32, {30, 100, 4}, scales}}));
  const QuantizedWeights weights = load(dir.path());
  const auto one = weights.dequantize("a", kF32, 1);
  ASSERT_TRUE(one);
  EXPECT_THAT(one->shape(), ElementsAre(30, 100, 256));
  const auto values = one->view().as<float>().value();
  for (const std::size_t row : {std::size_t{0}, std::size_t{1023}, std::size_t{1024}, std::size_t{2999}}) {
    const auto* const packed = reinterpret_cast<const unsigned char*>(codes.data()) + row * 128;
    for (std::size_t i = 0; i < 256; ++i) {
      const float scale = static_cast<float>(row) + static_cast<float>(i - i % 64) / 512;
      const auto code = static_cast<float>(i % 2 == 0 ? packed[i / 2] & 15 : packed[i / 2] >> 4);
      EXPECT_EQ(values[row * 256 + i], code * scale) << row << ' ' << i;
    }
  }
  for (const unsigned threads : {0U, 2U, 7U}) {
    EXPECT_EQ(to_text(weights.dequantize("a", kF32, threads)->bytes()), to_text(one->bytes()));
  }
}

TEST(QuantizedWeights, DequantizeNamesWhatItCannotDo) {
  const TempDir dir;
  write_model(dir);
  const QuantizedWeights weights = load(dir.path());
  EXPECT_TRUE(fails(weights.dequantize("norm", kF32), Errc::kNotFound, dir.path() + ": no quantized weight 'norm' among 2"));
  EXPECT_TRUE(fails(weights.dequantize("layers.0", kI8), Errc::kInvalidArgument,
                    dir.path() + ": 'layers.0' can be dequantized to F32, F16 or BF16, not I8"));
}

TEST(QuantizedWeights, DirectoryWithoutAConfigIsRefused) {
  const TempDir dir;
  const std::string file = dir.write("model.safetensors", test::safetensors({{"dummy", kU8, {16}}}));
  const std::string reason =
      ": no quantization_config.json, and no config.json with a section quantization or quantization_config";
  EXPECT_TRUE(fails(load_quantized_weights(dir.path()), Errc::kNotFound, dir.path() + reason));
  dir.write("config.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(fails(load_quantized_weights(dir.path()), Errc::kNotFound, dir.path() + reason));
  EXPECT_TRUE(fails(load_quantized_weights(file), Errc::kNotFound, file + reason));
}

TEST(QuantizedWeights, DirectoryWithoutWeightsIsRefused) {
  const TempDir dir;
  dir.write("quantization_config.json", "{}");
  EXPECT_TRUE(fails(load_quantized_weights(dir.path()), Errc::kNotFound,
                    dir.path() +
                        ": no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or "
                        "weights.mlx"));
}

TEST(QuantizedWeights, DefectsAreFoundBeforeLoading) {
  const TempDir dir;
  const std::string file = dir.write("model.safetensors", test::safetensors({{"a.scales", kF16, {2, 1}}}));
  const std::string config = dir.write("quantization_config.json", "{}");
  OneAllocation allocator;
  EXPECT_TRUE(fails(load_quantized_weights(dir.path(), {.allocator = &allocator}), Errc::kCorrupt,
                    file + ": tensor 'a.scales': 'a.weight' or 'a' is missing"));
  dir.write("quantization_config.json", R"({"bits": 1})");
  EXPECT_TRUE(fails(load_quantized_weights(dir.path(), {.allocator = &allocator}), Errc::kCorrupt,
                    config + ": bits is 1, mode affine allows 2, 3, 4, 5, 6, 8"));
  dir.write("quantization_config.json", "{}");
  dir.write("model.safetensors", "too short");
  EXPECT_EQ(load_quantized_weights(dir.path(), {.allocator = &allocator}).error().code, Errc::kCorrupt);
  EXPECT_EQ(allocator.allocations, 0);
}

}  // namespace
}  // namespace ballast
