#include <ballast/quantized_weights.h>

#include <filesystem>
#include <map>
#include <random>

#include <gmock/gmock.h>

#include <ballast/convert.h>
#include <ballast/quantize.h>

#include "quantize/packing.h"
#include "quantize/rows.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::raw;
using test::TempDir;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum DType;

static_assert(!std::is_copy_constructible_v<QuantizedWeights>);
static_assert(std::is_nothrow_move_constructible_v<QuantizedWeights>);

QuantizedWeights load(const std::string& directory, const LoadOptions& options = {}) {
  auto weights = load_quantized_weights(directory, options);
  EXPECT_TRUE(weights) << weights.error().message;
  return std::move(weights).value();
}

std::vector<std::string_view> names(const QuantizedWeights& weights) {
  std::vector<std::string_view> names;
  for (const QuantizedWeight& weight : weights.weights()) names.push_back(weight.name);
  return names;
}

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

// All of a model in memory that it gives, once.
class OneAllocation final : public Allocator {
 public:
  std::byte* allocate(std::size_t size) override {
    begin = full ? nullptr : host_allocator().allocate(size);
    end = full ? nullptr : begin + size;
    ++allocations;
    return begin;
  }
  void free(std::byte* bytes, std::size_t size) override {
    ++frees;
    host_allocator().free(bytes, size);
  }

  bool full = false;
  int allocations = 0;
  int frees = 0;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};

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
  EXPECT_THAT(failed.error().message, testing::HasSubstr(": no memory for "));
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
                    dir.path() + ": no weights: none of model.safetensors.index.json, model.safetensors, weights.safetensors, "
                                 "weights.mlx is there"));
}

TEST(QuantizedWeights, WhatIsWrongIsFoundBeforeAnythingIsLoaded) {
  const TempDir dir;
  const std::string file = dir.write("model.safetensors", test::safetensors({{"a.scales", kF16, {2, 1}}}));
  const std::string config = dir.write("quantization_config.json", "{}");
  OneAllocation allocator;
  EXPECT_TRUE(fails(load_quantized_weights(dir.path(), {.allocator = &allocator}), Errc::kCorrupt,
                    file + ": tensor 'a.scales': there is no 'a.weight' or 'a'"));
  dir.write("quantization_config.json", R"({"bits": 1})");
  EXPECT_TRUE(fails(load_quantized_weights(dir.path(), {.allocator = &allocator}), Errc::kCorrupt,
                    config + ": bits is 1, affine has 2, 3, 4, 5, 6, 8"));
  dir.write("quantization_config.json", "{}");
  dir.write("model.safetensors", "too short");
  EXPECT_EQ(load_quantized_weights(dir.path(), {.allocator = &allocator}).error().code, Errc::kCorrupt);
  EXPECT_EQ(allocator.allocations, 0);
}

std::vector<float> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A matrix with equalized columns, a tensor of three dimensions whose rows end within a byte and within a group, and tensors
// that are not quantized, as Parquet.
class ParquetWeights : public testing::Test {
 protected:
  static constexpr std::uint64_t kColumns = 128;

  ParquetWeights() {
    std::vector<float> a = normal_values(40 * kColumns, 1);
    for (std::size_t i = 7; i < a.size(); i += kColumns) a[i] *= 6;
    write({{"norm", kF32, {3}, raw({1.0F, 2.0F, 3.0F})},
           {"b.weight", kF16, {3, 5, 19}, halves(normal_values(3 * 5 * 19, 2))},
           {"a.weight", kF32, {40, kColumns}, raw(a)},
           {"ids", kI64, {2, 1}, raw<std::int64_t>({5, 6})},
           {"empty", kF32, {0, 4}}});
    std::vector<float> squares(kColumns, 2);
    for (std::size_t i = 3; i < kColumns; i += 16) squares[i] = 200;
    dir_.write("statistics.safetensors", test::safetensors({{"a.weight.x_mean", kF32, {1, kColumns}},
                                                            {"a.weight.x_sqmean", kF32, {1, kColumns}, raw(squares)},
                                                            {"a.weight.count", kF32, {1}, raw({1000.0F})},
                                                            {"a.weight.x_min", kF32, {1}, raw({-1.0F})},
                                                            {"a.weight.x_max", kF32, {1}, raw({1.0F})}},
                                                           R"({"format":"timecalib.v1","timesteps":"[0]"})"));
  }

  static std::string halves(const std::vector<float>& values) {
    std::string bytes(values.size() * 2, '\0');
    EXPECT_TRUE(convert_values(kF32, std::as_bytes(std::span(values)), kF16, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }

  void write(const std::vector<test::TensorText>& tensors) const {
    dir_.write("in/model.safetensors", test::safetensors(tensors));
  }

  // Returns where the quantized model is.
  std::string quantize(bool calibrated = true) const {
    QuantizeOptions options{.calibration = calibrated ? dir_.path("statistics.safetensors") : "", .sync = false};
    options.config.format = QuantizeFormat::kParquet;
    options.config.group_size = 64;
    if (calibrated) options.config.layer_bit_widths = {{"b.weight", 3}};
    options.config.min_accuracy = 0;
    options.config.enable_spatial = calibrated;
    options.config.enable_time_aware = false;
    const auto model = Model::open(dir_.path("in"));
    EXPECT_TRUE(model) << model.error().message;
    const auto report = quantize_model(*model, dir_.path("q"), options);
    EXPECT_TRUE(report) << report.error().message;
    return dir_.path("q");
  }

  // What dequantize_model() writes, by name.
  std::map<std::string, std::string> dequantized(const std::string& directory, DType dtype) const {
    const std::string file = dir_.path("out.safetensors");
    EXPECT_TRUE(dequantize_model(directory, file, {.dtype = dtype, .sink = {.sync = false}}));
    const auto model = Model::open(file);
    std::map<std::string, std::string> found;
    for (const TensorInfo& tensor : model->tensors()) {
      found.emplace(tensor.name, to_text(model->read(tensor.name).value().bytes()));
    }
    return found;
  }

  // Every quantized weight in every dtype, and every other tensor.
  void expect_what_dequantize_model_gives(const std::string& directory) const {
    const QuantizedWeights weights = load(directory);
    for (const DType dtype : {kF32, kF16, kBF16}) {
      const auto expected = dequantized(directory, dtype);
      EXPECT_EQ(weights.weights().size() + weights.others().size(), expected.size());
      for (const QuantizedWeight& weight : weights.weights()) {
        for (const unsigned threads : {0U, 1U, 3U}) {
          const auto found = weights.dequantize(weight.name, dtype, threads);
          ASSERT_TRUE(found) << found.error().message;
          EXPECT_EQ(found->name(), weight.name);
          EXPECT_TRUE(std::ranges::equal(found->shape(), weight.shape));
          EXPECT_TRUE(to_text(found->bytes()) == expected.at(std::string(weight.name))) << weight.name << ' ' << name(dtype);
        }
      }
      for (const TensorView& other : weights.others()) {
        EXPECT_TRUE(to_text(other.bytes) == expected.at(std::string(other.name))) << other.name;
      }
    }
  }

  TempDir dir_;
};

TEST_F(ParquetWeights, AreCodesScalesAndZeroPoints) {
  const QuantizedWeights weights = load(quantize());
  ASSERT_THAT(names(weights), ElementsAre("a.weight", "b.weight"));
  const QuantizedWeight& a = weights.weights()[0];
  EXPECT_EQ(a.scheme, "parquet");
  EXPECT_EQ(a.mode, QuantizationMode::kAffine);
  EXPECT_THAT(a.shape, ElementsAre(40, 128));
  EXPECT_EQ(a.dtype, kF32);
  EXPECT_EQ(a.bits, 4);
  EXPECT_EQ(a.groups(), 2);
  EXPECT_EQ(a.packed.dtype, kU8);
  EXPECT_THAT(a.packed.shape, ElementsAre(40, 64));
  EXPECT_EQ(a.restore.size(), kColumns);

  const QuantizedWeight& b = weights.weights()[1];
  EXPECT_THAT(b.shape, ElementsAre(3, 5, 19));
  EXPECT_EQ(b.dtype, kF16);
  EXPECT_EQ(b.bits, 3);
  EXPECT_EQ(b.group_size, 64);
  EXPECT_EQ(b.elements(), 285);
  EXPECT_EQ(b.packed.name, "b.weight");
  EXPECT_THAT(b.packed.shape, ElementsAre(3, 36));
  EXPECT_EQ(b.packed.bytes.size(), 108);
  EXPECT_EQ(b.scales.name, "b.weight.scales");
  EXPECT_EQ(b.scales.dtype, kF32);
  EXPECT_THAT(b.scales.shape, ElementsAre(3, 2));
  EXPECT_FALSE(b.biases);
  ASSERT_TRUE(b.zero_points);
  EXPECT_EQ(b.zero_points->name, "b.weight.zero_points");
  EXPECT_EQ(b.zero_points->dtype, kF32);
  EXPECT_THAT(b.zero_points->shape, ElementsAre(3, 2));
  EXPECT_THAT(b.restore, IsEmpty());

  ASSERT_EQ(weights.others().size(), 3);
  EXPECT_EQ(weights.others()[0].name, "empty");
  EXPECT_EQ(weights.others()[1].name, "ids");
  EXPECT_EQ(weights.others()[2].name, "norm");
  EXPECT_EQ(to_text(weights.others()[1].bytes), raw<std::int64_t>({5, 6}));
  EXPECT_EQ(weights.tensors().tensors().size(), 9);
  ASSERT_NE(weights.tensors().find("a.weight.zero_points"), nullptr);
  EXPECT_EQ(weights.tensors().find("a.weight.zero_points")->bytes.data(), a.zero_points->bytes.data());
}

TEST_F(ParquetWeights, StandForTheScaledDifferenceOfCodeAndZeroPoint) {
  const QuantizedWeights weights = load(quantize());
  for (const QuantizedWeight& weight : weights.weights()) {
    const auto scales = weight.scales.as<float>().value();
    const auto zero_points = weight.zero_points->as<float>().value();
    const std::uint64_t rows = weight.shape.front();
    const std::uint64_t columns = weight.elements() / rows;
    const std::uint64_t row_bytes = weight.packed.shape.back();
    const auto values = weights.dequantize(weight.name, kF32).value();
    std::vector<float> expected;
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::vector<std::uint8_t> codes(columns);
      unpack_codes(weight.bits, weight.packed.bytes.data() + row * row_bytes, codes);
      for (std::uint64_t i = 0; i < columns; ++i) {
        const std::uint64_t group = row * weight.groups() + i / weight.group_size;
        const float value = (static_cast<float>(codes[i]) - zero_points[group]) * scales[group];
        expected.push_back(weight.restore.empty() ? value : value * weight.restore[i]);
      }
    }
    EXPECT_EQ(to_text(values.bytes()), raw(expected)) << weight.name;
  }
}

TEST_F(ParquetWeights, DequantizeGivesWhatDequantizeModelWrites) { expect_what_dequantize_model_gives(quantize()); }

TEST_F(ParquetWeights, OfSeveralBlocksAreReadWhole) {
  constexpr std::uint64_t kRows = kBlockValues / 1024 + 100;
  std::string bytes((std::size_t{9} << 20) + 3, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13U);
  write({{"large", kF32, {kRows, 1024}, raw(normal_values(kRows * 1024, 3))}, {"plain", kU8, {bytes.size()}, bytes}});
  const std::string directory = quantize(false);
  expect_what_dequantize_model_gives(directory);
  const QuantizedWeights one = load(directory, {.work = {.threads = 1}});
  EXPECT_TRUE(to_text(one.others().front().bytes) == bytes);
}

TEST_F(ParquetWeights, HaveAConfigMadeOfThem) {
  const MlxQuantization config = load(quantize()).quantization();
  EXPECT_EQ(config.defaults.group_size, 64);
  EXPECT_EQ(config.find("a.weight"), (TensorQuantization{.bits = 4, .group_size = 64}));
  EXPECT_EQ(config.find("b.weight"), (TensorQuantization{.bits = 3, .group_size = 64}));
  EXPECT_EQ(config.find("norm"), std::nullopt);
  EXPECT_EQ(config.per_tensor.size(), 5);
}

TEST_F(ParquetWeights, OutliveTheFiles) {
  const std::string directory = quantize();
  const std::string expected = dequantized(directory, kF32).at("a.weight");
  QuantizedWeights weights = load(directory);
  std::filesystem::remove_all(directory);
  const QuantizedWeights moved = std::move(weights);
  EXPECT_EQ(to_text(moved.dequantize("a.weight", kF32).value().bytes()), expected);
}

TEST_F(ParquetWeights, LieInTheCallersMemoryWithinTheLimit) {
  const std::string directory = quantize();
  OneAllocation allocator;
  std::uint64_t bytes = 0;
  {
    const QuantizedWeights weights = load(directory, {.allocator = &allocator});
    bytes = weights.tensors().bytes();
    EXPECT_EQ(allocator.end - allocator.begin, static_cast<std::ptrdiff_t>(bytes));
    for (const TensorView& tensor : weights.tensors().tensors()) {
      if (tensor.bytes.empty()) continue;
      EXPECT_GE(tensor.bytes.data(), allocator.begin);
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), allocator.end);
      EXPECT_EQ((tensor.bytes.data() - allocator.begin) % 64, 0);
    }
    EXPECT_EQ(allocator.allocations, 1);
  }
  EXPECT_EQ(allocator.frees, 1);
  EXPECT_TRUE(load_quantized_weights(directory, {.work = {.memory_limit = bytes}}));
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator, .work = {.memory_limit = bytes - 1}}),
                    Errc::kInvalidArgument,
                    fmt::format("{}: loading takes {} bytes, the limit is {}", directory, bytes, bytes - 1)));
  EXPECT_EQ(allocator.allocations, 1);
  allocator.full = true;
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator}), Errc::kUnsupported,
                    fmt::format("{}: no memory for {} bytes", directory, bytes)));
}

TEST_F(ParquetWeights, ProgressCountsAllBytesAndCanCancel) {
  const std::string directory = quantize();
  std::uint64_t last = 0;
  std::uint64_t last_total = 0;
  const Progress count = [&](std::uint64_t done, std::uint64_t total, std::string_view what) {
    EXPECT_GT(done, last);
    EXPECT_TRUE(what.ends_with(".parquet")) << what;
    last = done;
    last_total = total;
    return true;
  };
  const QuantizedWeights weights = load(directory, {.work = {.progress = count}});
  std::uint64_t bytes = 0;
  for (const TensorView& tensor : weights.tensors().tensors()) bytes += tensor.bytes.size();
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(last_total, bytes);

  OneAllocation allocator;
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator, .work = {.progress = stop}}), Errc::kCancelled,
                    "cancelled"));
  EXPECT_EQ(allocator.frees, 1);
}

TEST_F(ParquetWeights, NamesThatCollideAreRefused) {
  write({{"a", kF32, {4, 64}, raw(normal_values(256, 4))}, {"a.scales", kF32, {3}, raw({1.0F, 2.0F, 3.0F})}});
  const std::string directory = quantize(false);
  OneAllocation allocator;
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator}), Errc::kUnsupported,
                    directory + ": two tensors would be named 'a.scales'"));
  EXPECT_EQ(allocator.allocations, 0);
}

TEST_F(ParquetWeights, OfADamagedFileAreRefusedBeforeAnythingIsLoaded) {
  const std::string directory = quantize();
  std::string part;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".parquet") part = entry.path().string();
  }
  const auto size = std::filesystem::file_size(part);
  std::filesystem::resize_file(part, size - 1);
  OneAllocation allocator;
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator}), Errc::kCorrupt,
                    fmt::format("{}: has {} bytes, metadata.json says {}", part, size - 1, size)));
  EXPECT_EQ(allocator.allocations, 0);
}

}  // namespace
}  // namespace ballast
