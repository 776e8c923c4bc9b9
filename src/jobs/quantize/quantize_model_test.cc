#include <ballast/quantize.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheme/reader.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::fails;
using testing::ElementsAre;
using testing::HasSubstr;

std::string normal_values(std::size_t count, unsigned seed, float deviation = 0.02F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += test::raw({normal(random)});
  return bytes;
}

class Quantizing : public testing::TestWithParam<QuantizeFormat> {
 protected:
  // A model of two matrices, a vector and integers, in a directory with a config.
  Quantizing() {
    write({{"a.weight", DType::kF32, {48, 128}, normal_values(48 * 128, 1)},
           {"b.weight", DType::kF32, {16, 64}, normal_values(16 * 64, 2)},
           {"b.bias", DType::kF32, {16}, normal_values(16, 3)},
           {"ids", DType::kI64, {2, 3}, test::raw<std::int64_t>({1, 2, 3, 4, 5, 6})}});
    dir_.write("in/config.json", R"({"model_type": "x", "quantization": {"bits": 3}, "n": 1.50})");
    dir_.write("in/tokenizer.json", "{}");
  }

  void write(const std::vector<test::TensorText>& tensors) const {
    dir_.write("in/model.safetensors", test::safetensors(tensors));
  }

  QuantizeOptions options(unsigned bits = 4, unsigned group_size = 64) const {
    QuantizeOptions made{.sync = false};
    made.config.format = GetParam();
    made.config.bit_width = bits;
    made.config.group_size = group_size;
    return made;
  }

  Result<QuantizeReport> quantize(const QuantizeOptions& options, const std::string& out = "out") const {
    const auto model = Model::open(dir_.path("in"));
    if (!model) return std::unexpected(model.error());
    return quantize_model(*model, dir_.path(out), options);
  }

  Result<QuantizeReport> validate(double min_accuracy = 0, const std::string& out = "out") const {
    const auto model = Model::open(dir_.path("in"));
    if (!model) return std::unexpected(model.error());
    return validate_model(*model, dir_.path(out), {.min_accuracy = min_accuracy});
  }

  std::vector<std::string> listing(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path(folder))) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  test::TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Formats, Quantizing, testing::Values(QuantizeFormat::kParquet, QuantizeFormat::kMlx),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(Quantizing, MetricsMatchTheFilesOnDisk) {
  for (const unsigned bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
    QuantizeOptions wanted = options(bits);
    wanted.config.min_accuracy = 0;
    const auto done = quantize(wanted);
    ASSERT_TRUE(done) << done.error().message;
    const auto found = validate();
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(done->layers.size(), 2U);
    EXPECT_EQ(done->unquantized, 2U);
    EXPECT_EQ(found->unquantized, 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(done->layers[i].bits, bits);
      const auto same = std::ranges::find(found->layers, done->layers[i].name, &LayerReport::name);
      ASSERT_NE(same, found->layers.end());
      EXPECT_EQ(same->quality.cosine_similarity, done->layers[i].quality.cosine_similarity);
      EXPECT_EQ(same->quality.relative_rmse, done->layers[i].quality.relative_rmse);
      EXPECT_EQ(same->quality.max_error, done->layers[i].quality.max_error);
      EXPECT_EQ(same->bytes, done->layers[i].bytes);
    }
    EXPECT_EQ(found->quality.cosine_similarity, done->quality.cosine_similarity);
    std::uint64_t bytes = 0;
    for (const std::string& file : done->files) bytes += fs::file_size(file);
    EXPECT_EQ(done->bytes, bytes);
    EXPECT_EQ(found->bytes, bytes);
    EXPECT_EQ(done->compression_ratio(),
              static_cast<double>(fs::file_size(dir_.path("in/model.safetensors"))) / static_cast<double>(bytes));
  }
}

TEST_P(Quantizing, UnquantizedTensorsAreBitExact) {
  ASSERT_TRUE(quantize(options()));
  const auto restored = dequantize_model(dir_.path("out"), dir_.path("back"), {.sink = {.sync = false}});
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(restored->converted, 2U);
  const auto before = Model::open(dir_.path("in"));
  const auto after = Model::open(dir_.path("back"));
  ASSERT_TRUE(after) << after.error().message;
  for (const char* const kept : {"b.bias", "ids"}) {
    EXPECT_EQ(test::to_text(after->read(kept)->bytes()), test::to_text(before->read(kept)->bytes())) << kept;
  }
  EXPECT_EQ(after->find("a.weight")->dtype, DType::kF32);
  EXPECT_THAT(std::vector(after->find("a.weight")->shape.begin(), after->find("a.weight")->shape.end()), ElementsAre(48, 128));
  EXPECT_EQ(test::content(dir_.path("back/config.json")), "{\n  \"model_type\": \"x\",\n  \"n\": 1.50\n}\n");
}

TEST_P(Quantizing, ThreadsDoNotChangeAByte) {
  write({{"a.weight", DType::kF32, {4200, 2048}, normal_values(4200 * 2048, 1)}});
  QuantizeOptions wanted = options(4, 128);
  wanted.config.method = QuantizeMethod::kRtn;
  for (const unsigned threads : {1U, 2U, 8U}) {
    wanted.config.num_threads = threads;
    const std::string out = fmt::format("out{}", threads);
    ASSERT_TRUE(quantize(wanted, out));
    for (const std::string& name : listing(out)) {
      EXPECT_EQ(test::content(dir_.path(out + "/" + name)), test::content(dir_.path("out1/" + name))) << name;
    }
  }
}

TEST_P(Quantizing, LayersBelowTheMinimumGetMoreBits) {
  std::string hard;  // one large value in every group leaves little for the rest
  for (std::size_t i = 0; i < 16 * 64; ++i) hard += test::raw({i % 64 == 5 ? 1.0F : 0.2F * std::sin(static_cast<float>(i))});
  write({{"easy.weight", DType::kF32, {16, 64}, normal_values(16 * 64, 2)}, {"hard.weight", DType::kF32, {16, 64}, hard}});
  QuantizeOptions wanted = options(2);
  wanted.config.min_accuracy = 0.93;
  const auto easy_alone = quantize(wanted);
  ASSERT_TRUE(easy_alone) << easy_alone.error().message;
  const auto layer = [&](std::string_view name) { return *std::ranges::find(easy_alone->layers, name, &LayerReport::name); };
  EXPECT_EQ(layer("easy.weight").bits, 2U);
  EXPECT_GT(layer("hard.weight").bits, 2U);
  EXPECT_EQ(layer("hard.weight").planned_bits, 2U);
  EXPECT_TRUE(easy_alone->passed);
  EXPECT_TRUE(validate(0.93)->passed);

  wanted.config.fail_fast = true;
  const auto failed = quantize(wanted, "other");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kBelowMinimum);
  EXPECT_THAT(failed.error().message, HasSubstr("tensor 'hard.weight': cosine 0."));
  EXPECT_FALSE(fs::exists(dir_.path("other")));
}

TEST_P(Quantizing, RefusesNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::string values = normal_values(16 * 64, 2);
    values.replace(400, 4, test::raw({bad}));
    write({{"w", DType::kF32, {16, 64}, values}});
    EXPECT_TRUE(fails(quantize(options()), Errc::kCorrupt,
                      fmt::format("{}: tensor 'w': 1 of 1024 values in rows 0 to 15 is NaN or infinite; "
                                  "repair the weights, or leave the tensor unquantized with sensitive_layer_names",
                                  dir_.path("in"))));
    EXPECT_FALSE(fs::exists(dir_.path("out")));
  }
}

TEST_P(Quantizing, CancelLeavesNothing) {
  QuantizeOptions wanted = options();
  wanted.work.progress = [](auto...) { return false; };
  EXPECT_TRUE(fails(quantize(wanted), Errc::kCancelled, "cancelled"));
  EXPECT_THAT(listing("."), ElementsAre("in"));
}

TEST_P(Quantizing, ResumesAfterAnInterruption) {
  write({{"a.weight", DType::kF32, {2500, 2048}, normal_values(2500 * 2048, 1)},
         {"b.bias", DType::kF32, {16}, normal_values(16, 3)}});
  QuantizeOptions wanted = options(4, 128);
  wanted.config.method = QuantizeMethod::kRtn;
  ASSERT_TRUE(quantize(wanted, "whole"));
  wanted.resume = true;
  wanted.config.num_threads = 1;
  wanted.config.min_accuracy = 0;
  QuantizeOptions broken = wanted;
  broken.work.progress = [](std::uint64_t done, std::uint64_t, auto) { return done == 0; };
  EXPECT_TRUE(fails(quantize(broken), Errc::kCancelled, "cancelled"));
  EXPECT_TRUE(fs::exists(dir_.path("out.incomplete")));
  const auto done = quantize(wanted);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(fs::exists(dir_.path("out.incomplete")));
  EXPECT_FALSE(done->up_to_date);
  EXPECT_EQ(done->quality.relative_rmse, validate()->quality.relative_rmse);
  for (const std::string& name : listing("whole")) {
    if (name == "metadata.json" || name.ends_with(".index.json")) continue;  // they name the settings
    EXPECT_EQ(test::content(dir_.path("out/" + name)), test::content(dir_.path("whole/" + name))) << name;
  }
  EXPECT_TRUE(quantize(wanted)->up_to_date);
  wanted.config.bit_width = 8;
  EXPECT_FALSE(quantize(wanted)->up_to_date);
}

TEST_P(Quantizing, CopiesCompanions) {
  ASSERT_TRUE(quantize(options()));
  EXPECT_EQ(test::content(dir_.path("out/tokenizer.json")), "{}");
  const std::string config = test::content(dir_.path("out/config.json"));
  if (GetParam() == QuantizeFormat::kMlx) {
    EXPECT_EQ(config,
              "{\n  \"model_type\": \"x\",\n  \"n\": 1.50,\n"
              "  \"quantization\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"},\n"
              "  \"quantization_config\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"}\n}\n");
  } else {
    EXPECT_EQ(config, R"({"model_type": "x", "quantization": {"bits": 3}, "n": 1.50})");
  }
}

TEST_P(Quantizing, OneDirectoryReplacesTheOther) {
  QuantizeOptions other = options();
  other.config.format = GetParam() == QuantizeFormat::kMlx ? QuantizeFormat::kParquet : QuantizeFormat::kMlx;
  ASSERT_TRUE(quantize(other));
  ASSERT_TRUE(quantize(options()));
  ASSERT_TRUE(quantize(other));
  dir_.write("out/notes.txt", "mine");
  QuantizeOptions forced = options();
  forced.force = true;
  ASSERT_TRUE(quantize(forced));
  EXPECT_EQ(is_parquet_model(*find_place(dir_.path("out"))), GetParam() == QuantizeFormat::kParquet);
  EXPECT_EQ(test::content(dir_.path("out/notes.txt")), "mine");
  EXPECT_TRUE(validate());
}

TEST_P(Quantizing, ValidateDetectsADifferentModel) {
  ASSERT_TRUE(quantize(options()));
  write({{"a.weight", DType::kF32, {48, 64}}});
  EXPECT_TRUE(
      fails(validate(), Errc::kCorrupt,
            fmt::format("{}: tensor 'a.weight': shape is [48, 128], in {} it is [48, 64]", dir_.path("out"), dir_.path("in"))));
}

// A byte that belongs to no value, such as one of the file's own statistics, changes no figure.
TEST_P(Quantizing, ValidateDetectsAWrongChecksum) {
  if (GetParam() != QuantizeFormat::kParquet) return;  // MLX has no checksums
  ASSERT_TRUE(quantize(options()));
  std::string metadata = test::content(dir_.path("out/metadata.json"));
  const std::size_t sum = metadata.find("\"sha256\": \"") + 11;
  metadata[sum] = metadata[sum] == '0' ? '1' : '0';
  dir_.write("out/metadata.json", metadata);
  const auto validated = validate();
  ASSERT_FALSE(validated);
  EXPECT_EQ(validated.error().code, Errc::kCorrupt);
  EXPECT_THAT(validated.error().message, HasSubstr("SHA-256 is"));
}

// What a run with other settings left is larger than what this one makes.
TEST_P(Quantizing, OtherSettingsRestart) {
  QuantizeOptions wide = options(8);
  wide.resume = true;
  wide.work.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  ASSERT_FALSE(quantize(wide));
  QuantizeOptions narrow = options(2);
  narrow.config.min_accuracy = 0;
  narrow.resume = true;
  ASSERT_TRUE(quantize(narrow));
  narrow.resume = false;
  ASSERT_TRUE(quantize(narrow, "fresh"));
  ASSERT_TRUE(validate());
  for (const std::string& name : listing("fresh")) {
    EXPECT_EQ(test::content(dir_.path("out/" + name)), test::content(dir_.path("fresh/" + name))) << name;
  }
  EXPECT_FALSE(fs::exists(dir_.path("out.incomplete")));
}

TEST_P(Quantizing, RefusesConcurrentRuns) {
  std::string second;
  QuantizeOptions outer = options();
  outer.resume = true;
  outer.work.progress = [&](std::uint64_t, std::uint64_t total, std::string_view) {
    if (total == 0) return true;  // it has not begun to write
    QuantizeOptions inner = options(8);
    inner.resume = true;
    const auto refused = quantize(inner);
    if (!refused) second = refused.error().message;
    return true;
  };
  ASSERT_TRUE(quantize(outer));
  EXPECT_THAT(second, HasSubstr("another process is writing to it"));
  EXPECT_TRUE(validate());
}

TEST_P(Quantizing, DropsMetadataOfOtherWeights) {
  dir_.write("in/quantization_config.json", R"({"bits": 8, "group_size": 64})");
  ASSERT_TRUE(quantize(options()));
  EXPECT_FALSE(fs::exists(dir_.path("out/quantization_config.json")));
  EXPECT_TRUE(validate());
  dir_.write("out/quantization_config.json", R"({"bits": 8, "group_size": 64})");
  ASSERT_TRUE(quantize(options()));
  EXPECT_TRUE(validate());
}

TEST_P(Quantizing, IsNotUpToDateAfterACompanionChanges) {
  QuantizeOptions resumed = options();
  resumed.resume = true;
  ASSERT_TRUE(quantize(resumed));
  EXPECT_TRUE(quantize(resumed)->up_to_date);
  fs::remove(dir_.path("out/tokenizer.json"));
  EXPECT_FALSE(quantize(resumed)->up_to_date);
  dir_.write("in/tokenizer.json", "[]");
  EXPECT_FALSE(quantize(resumed)->up_to_date);
  EXPECT_EQ(test::content(dir_.path("out/tokenizer.json")), "[]");
  EXPECT_TRUE(quantize(resumed)->up_to_date);
  const std::string weights = GetParam() == QuantizeFormat::kMlx ? "out/model.safetensors" : "out/model-00001-of-00001.parquet";
  dir_.write(weights, test::content(dir_.path(weights)));
  EXPECT_FALSE(quantize(resumed)->up_to_date);
}

TEST_P(Quantizing, WarnsIfNothingWasQuantized) {
  write({{"a.weight", DType::kF32, {64}, normal_values(64, 1)}});
  const auto report = quantize(options());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->unquantized, 1);
  EXPECT_THAT(report->warnings, ElementsAre(HasSubstr("nothing was quantized: every tensor has fewer than two dimensions")));
}

TEST_P(Quantizing, RefusesAFileNameAsOutput) {
  EXPECT_TRUE(fails(quantize(options(), "out.safetensors"), Errc::kInvalidArgument,
                    dir_.path("out.safetensors") + ": a quantized model is a directory; give a name without .safetensors"));
  EXPECT_EQ(listing("."), std::vector<std::string>{"in"});
}

TEST_P(Quantizing, CopiesFoldersAndNotesWhatItLeavesOut) {
  dir_.write("in/1_Pooling/config.json", "{}");
  dir_.write("in/onnx/model.onnx", "x");
  const auto report = quantize(options());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(test::content(dir_.path("out/1_Pooling/config.json")), "{}");
  EXPECT_THAT(report->not_copied, ElementsAre("onnx/model.onnx"));
  EXPECT_THAT(report->notes, testing::Contains("not copied: onnx/model.onnx"));
  EXPECT_THAT(report->warnings, testing::IsEmpty());
}

TEST_P(Quantizing, AnOutputWithOtherFilesIsRefusedUnlessForced) {
  dir_.write("out/notes.txt", "mine");
  EXPECT_TRUE(fails(quantize(options()), Errc::kWrite,
                    dir_.path("out") + ": the directory is not empty: 'notes.txt' would stay beside the model; choose another "
                                       "directory, or allow it (force)"));
  QuantizeOptions forced = options();
  forced.force = true;
  ASSERT_TRUE(quantize(forced));
  EXPECT_EQ(test::content(dir_.path("out/notes.txt")), "mine");
}

TEST_P(Quantizing, AdaptersAreRefused) {
  write({{"q.lora_A.weight", DType::kF32, {8, 64}, normal_values(512, 1)}});
  EXPECT_TRUE(fails(quantize(options()), Errc::kUnsupported,
                    dir_.path("in") + ": an adapter (LoRA), not a model (tensor 'q.lora_A.weight'); quantize the model that it "
                                      "belongs to"));
}

TEST_P(Quantizing, DequantizeWarnsAboutOutOfRangeValues) {
  write({{"a.weight", DType::kF32, {1, 64}, normal_values(64, 1, 1e30F)}});
  ASSERT_TRUE(quantize(options()));
  const auto done = dequantize_model(dir_.path("out"), dir_.path("back.safetensors"), {.dtype = DType::kF16});
  ASSERT_TRUE(done);
  EXPECT_THAT(done->warnings, ElementsAre(HasSubstr("of 64 values are NaN or infinite as F16")));
  EXPECT_FALSE(dequantize_model(dir_.path("out"), dir_.path("out")));
  EXPECT_FALSE(dequantize_model(dir_.path("out"), dir_.path("b.safetensors"), {.work = {.memory_limit = 100}}));
}

TEST_P(Quantizing, WarnsAboutTheModelsMetadataFile) {
  dir_.write("in/metadata.json", "{}");
  const auto report = quantize(options());
  ASSERT_TRUE(report);
  if (GetParam() == QuantizeFormat::kMlx) {
    EXPECT_THAT(report->warnings, testing::IsEmpty());
  } else {
    EXPECT_THAT(report->warnings, ElementsAre(HasSubstr("metadata.json is not copied")));
  }
}

TEST(QuantizingMlx, RefusesAmbiguousNames) {
  const test::TempDir dir;
  const auto quantize = [&](const std::vector<std::string>& names, std::map<std::string, unsigned> widths) {
    std::vector<test::TensorText> tensors;
    for (const std::string& name : names) tensors.push_back({name, DType::kF32, {2, 64}, normal_values(128, 1)});
    const auto model = Model::open(dir.write("in/model.safetensors", test::safetensors(tensors)));
    QuantizeOptions options{.sync = false};
    options.config.format = QuantizeFormat::kMlx;
    options.config.group_size = 64;
    options.config.layer_bit_widths = std::move(widths);
    const auto done = quantize_model(*model, dir.path("out"), options);
    if (!done) return done.error().message;
    const auto validated = validate_model(*model, dir.path("out"));
    return validated ? std::string("ok") : validated.error().message;
  };
  EXPECT_EQ(quantize({"a.weight", "language_model.a.weight", "b.weight", "c.weight"}, {{"a.weight", 8}}), "ok");
  EXPECT_EQ(quantize({"l*.weight", "l1.weight", "l2.weight"}, {{"l*.weight", 8}, {"l1", 4}, {"l2", 4}}), "ok");
  EXPECT_THAT(quantize({"a.weight", "bits"}, {{"bits", 8}}), HasSubstr("a setting of that name"));
}

TEST(QuantizingMlx, DetectsWrongBits) {
  const test::TempDir dir;
  const auto model = Model::open(
      dir.write("in/model.safetensors", test::safetensors({{"a.weight", DType::kF32, {4, 128}, normal_values(512, 1)}})));
  QuantizeOptions options{.sync = false};
  options.config.format = QuantizeFormat::kMlx;
  options.config.group_size = 64;
  ASSERT_TRUE(quantize_model(*model, dir.path("out"), options));
  dir.write("out/config.json", R"({"quantization": {"bits": 8, "group_size": 32}})");
  const auto opened = Weights::open(dir.path("out"));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message,
              HasSubstr("says 512 parameters, but with the bits and group sizes of the config there are 256"));
}

TEST(QuantizingParquet, DetectsMissingTensors) {
  const test::TempDir dir;
  const auto model = Model::open(
      dir.write("in/model.safetensors", test::safetensors({{"a.weight", DType::kF32, {4, 128}, normal_values(512, 1)}})));
  ASSERT_TRUE(quantize_model(*model, dir.path("out"), {.sync = false}));
  std::string metadata = test::content(dir.path("out/metadata.json"));
  const std::size_t begin = metadata.find("[", metadata.find("\"parts\""));
  metadata.replace(begin, metadata.find("]", begin) + 1 - begin, "[]");
  dir.write("out/metadata.json", metadata);
  const auto opened = Weights::open(dir.path("out"));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("tensor_count is 1, the parts have 0"));
}

TEST(QuantizingMlx, NeedsColumnsThatGroupsDivide) {
  const test::TempDir dir;
  dir.write("m.safetensors", test::one_tensor(DType::kF32, "[2,40]", std::string(320, '\0')));
  const auto model = Model::open(dir.path("m.safetensors"));
  const auto done = quantize_model(*model, dir.path("out"), {.config = {.group_size = 32, .format = QuantizeFormat::kMlx}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::kUnsupported);
  EXPECT_THAT(done.error().message, HasSubstr("40"));
  EXPECT_THAT(done.error().message, HasSubstr("32"));
}

TEST(QuantizingParquet, HasAShorterLastGroupAndConvolutions) {
  const test::TempDir dir;
  dir.write("m.safetensors", test::safetensors({{"conv.weight", DType::kF32, {8, 3, 5, 5}, normal_values(8 * 75, 4)}}));
  const auto model = Model::open(dir.path("m.safetensors"));
  const auto done = quantize_model(*model, dir.path("out"), {.config = {.bit_width = 8, .group_size = 32}, .sync = false});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_LT(done->quality.relative_rmse, 0.01);
  EXPECT_EQ(done->layers[0].bytes, 8U * (75 + 3 * 4));
  EXPECT_EQ(validate_model(*model, dir.path("out"))->quality.relative_rmse, done->quality.relative_rmse);
}

}  // namespace
}  // namespace ballast
