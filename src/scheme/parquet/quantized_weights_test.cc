#include <ballast/quantized_weights.h>

#include <filesystem>
#include <map>
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
                    fmt::format("{}: loading needs {} bytes, but the memory limit is {}", directory, bytes, bytes - 1)));
  EXPECT_EQ(allocator.allocations, 1);
  allocator.full = true;
  EXPECT_TRUE(fails(load_quantized_weights(directory, {.allocator = &allocator}), Errc::kUnsupported,
                    fmt::format("{}: cannot allocate {} bytes: out of memory", directory, bytes)));
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
                    fmt::format("{}: file has {} bytes, metadata.json says {}", part, size - 1, size)));
  EXPECT_EQ(allocator.allocations, 0);
}

}  // namespace
}  // namespace ballast
