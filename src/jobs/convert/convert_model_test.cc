#include <ballast/convert_model.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::fails;
using test::raw;
using testing::ElementsAre;

class Converting : public testing::Test {
 protected:
  // A model of three tensors in a directory with a config.
  Converting() {
    const std::string data = raw<float>({1, -2.5F, 1e6F, 65504}) + raw<std::int64_t>({1, 300}) + raw<std::uint8_t>({0, 1, 2});
    dir_.write("in/model.safetensors",
               test::safetensors(R"({"f":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                                 R"("i":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},)"
                                 R"("u":{"dtype":"U8","shape":[3],"data_offsets":[32,35]},"__metadata__":{"k":"v"}})",
                                 data));
    dir_.write("in/config.json", R"({"model_type": "x", "torch_dtype": "float32"})");
  }
  Result<ConvertReport> convert(const std::string& out, ConvertOptions options = {}) const {
    const auto model = Model::open(dir_.path("in"));
    if (!model) return std::unexpected(model.error());
    options.sink.sync = false;
    return convert_model(*model, dir_.path(out), options);
  }
  std::string values(const std::string& path, std::string_view name) const {
    const auto model = Model::open(dir_.path(path));
    if (!model) return model.error().message;
    return test::to_text(model->read(name)->bytes());
  }

  test::TempDir dir_;
};

TEST_F(Converting, CopiesWhatKeepsItsDType) {
  const auto done = convert("out.safetensors");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->tensors, 3U);
  EXPECT_EQ(done->converted, 0U);
  EXPECT_EQ(done->data_bytes, 35U);
  ASSERT_EQ(done->files.size(), 1U);
  EXPECT_EQ(done->files[0].bytes, fs::file_size(dir_.path("out.safetensors")));
  EXPECT_EQ(values("out.safetensors", "i"), raw<std::int64_t>({1, 300}));
  EXPECT_EQ(values("out.safetensors", "u"), raw<std::uint8_t>({0, 1, 2}));
}

TEST_F(Converting, ConvertsAndWarnsAboutOverflow) {
  const auto done = convert("out", {.dtype = DType::kF16});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->converted, 1U);
  EXPECT_EQ(values("out", "f"), raw<std::uint16_t>({0x3c00, 0xc100, 0x7c00, 0x7bff}));
  EXPECT_THAT(done->warnings, ElementsAre("tensor 'f': 1 of 4 values are out of range of F16 and became infinite or NaN"));
  EXPECT_EQ(test::content(dir_.path("out/config.json")), R"({"model_type": "x", "torch_dtype": "float16"})");
}

TEST_F(Converting, KeepsTheStemOfTheFiles) {
  dir_.write("lora/adapter_model.safetensors", test::one_tensor(DType::kF32, "[4]", raw<float>({1, 2, 3, 4})));
  dir_.write("lora/adapter_config.json", "{}");
  const auto model = Model::open(dir_.path("lora"));
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(convert_model(*model, dir_.path("one"), {.sink = {.sync = false}}));
  EXPECT_TRUE(fs::exists(dir_.path("one/adapter_model.safetensors")));
  EXPECT_TRUE(fs::exists(dir_.path("one/adapter_config.json")));
  const auto whole = Model::open(dir_.path("in"));
  ASSERT_TRUE(convert_model(*whole, dir_.path("all.safetensors"), {.sink = {.sync = false}}));
  const auto renamed = Model::open(dir_.path("all.safetensors"));
  ASSERT_TRUE(convert_model(*renamed, dir_.path("two"), {.sink = {.max_shard_bytes = 1, .sync = false}}));
  EXPECT_TRUE(fs::exists(dir_.path("two/all-00001-of-00003.safetensors")));
  EXPECT_TRUE(fs::exists(dir_.path("two/all.safetensors.index.json")));
  EXPECT_EQ(values("two", "u"), raw<std::uint8_t>({0, 1, 2}));
}

TEST_F(Converting, WarnsAboutLostSpecialValues) {
  dir_.write("special.safetensors", test::one_tensor(DType::kF32, "[4]", raw<float>({1, NAN, INFINITY, 100})));
  const auto model = Model::open(dir_.path("special.safetensors"));
  ASSERT_TRUE(model);
  const auto done = convert_model(*model, dir_.path("out.safetensors"), {.dtype = DType::kF4});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(done->warnings, ElementsAre("tensor 't': 2 of 4 values are NaN or infinite, which F4 cannot hold"));
}

TEST_F(Converting, AValueThatMlxJsonCannotHoldIsNamed) {
  dir_.write("w.mlx",
             R"({"weights":{"a":{"shape":[1],"dtype":"float32","data":[1]},"b":{"shape":[1],"dtype":"float32","data":[1e39]}}})");
  const auto model = Model::open(dir_.path("w.mlx"));
  ASSERT_TRUE(model) << model.error().message;
  const auto done = convert_model(*model, dir_.path("out.safetensors"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, dir_.path("w.mlx") + ": tensor 'b': element 0: '1e39' at byte 102 does not fit float32");
}

TEST_F(Converting, LossIsRefusedUnlessAllowed) {
  ConvertOptions options{.dtype_rules = {{.pattern = "i", .dtype = DType::kU8}}};
  EXPECT_TRUE(fails(convert("out.safetensors", options), Errc::kUnsupported,
                    dir_.path("in") + ": tensor 'i': value 1 of 2 does not fit U8; set allow_loss to convert anyway"));
  EXPECT_FALSE(fs::exists(dir_.path("out.safetensors")));
  options.on_loss = OnLoss::kAllow;
  const auto done = convert("out.safetensors", options);
  ASSERT_TRUE(done);
  EXPECT_EQ(values("out.safetensors", "i"), raw<std::uint8_t>({1, 255}));
  EXPECT_THAT(done->warnings, ElementsAre("tensor 'i': 1 of 2 values do not fit U8, the first at index 1"));
}

TEST_F(Converting, CancelsWithoutATrace) {
  EXPECT_TRUE(fails(convert("out.safetensors", {.work = {.progress = [](auto, auto, auto) { return false; }}}), Errc::kCancelled,
                    "cancelled"));
  EXPECT_TRUE(fails(convert("out", {.dtype = DType::kF64, .work = {.progress = [](auto, auto, auto) { return false; }}}),
                    Errc::kCancelled, "cancelled"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()), 1);
}

TEST_F(Converting, ProgressReachesTheTotal) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  ASSERT_TRUE(convert("out.mlx",
                      {.dtype = DType::kBF16, .work = {.progress = [&](std::uint64_t done, std::uint64_t all, std::string_view) {
                                                last = done;
                                                total = all;
                                                return true;
                                              }}}));
  EXPECT_EQ(last, 27U);
  EXPECT_EQ(total, 27U);
}

TEST_F(Converting, ManyBlocksOnManyThreads) {
  std::vector<float> numbers(300'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 7;
  const std::vector<std::uint64_t> shape{300, 1000};
  const TensorView tensor{.name = "t", .dtype = DType::kF32, .shape = shape, .bytes = std::as_bytes(std::span(numbers))};
  ASSERT_TRUE(save_tensors(dir_.path("big.safetensors"), std::span(&tensor, 1)));
  const auto model = Model::open(dir_.path("big.safetensors"));
  ASSERT_TRUE(model);
  std::set<std::string> outputs;
  for (const unsigned threads : {1U, 3U, 8U}) {
    ConvertOptions options{.dtype = DType::kF8E4M3, .work = {.memory_limit = 1 << 20}};
    options.work.threads = threads;
    ASSERT_TRUE(convert_model(*model, dir_.path("out.safetensors"), options));
    outputs.insert(values("out.safetensors", "t"));
  }
  EXPECT_EQ(outputs.size(), 1U);
  EXPECT_EQ(outputs.begin()->size(), numbers.size());
}

TEST_F(Converting, ResumesAfterAnInterruption) {
  const std::vector<float> numbers(1'000'000, 1.5F);
  const std::vector<std::uint64_t> shape{1000, 1000};
  const TensorView tensor{.name = "t", .dtype = DType::kF32, .shape = shape, .bytes = std::as_bytes(std::span(numbers))};
  ASSERT_TRUE(save_tensors(dir_.path("big.safetensors"), std::span(&tensor, 1)));
  const auto model = Model::open(dir_.path("big.safetensors"));
  ASSERT_TRUE(model);
  for (const auto& [out, kept] :
       {std::pair("out.safetensors", "out.safetensors.incomplete"), std::pair("folder", "folder.incomplete/big.safetensors")}) {
    ConvertOptions options{.dtype = DType::kBF16, .resume = true, .work = {.memory_limit = 1 << 20}};
    options.work.threads = 1;
    options.work.progress = [](std::uint64_t done, std::uint64_t total, std::string_view) { return done < total / 2; };
    EXPECT_TRUE(fails(convert_model(*model, dir_.path(out), options), Errc::kCancelled, "cancelled"));
    EXPECT_FALSE(fs::exists(dir_.path(out)));
    ASSERT_TRUE(fs::exists(dir_.path(kept)));
    {
      // A mark on what is done shows that it is not done again.
      std::fstream file(dir_.path(kept), std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(fs::file_size(dir_.path(kept)) - 2'000'000));
      file.write("\x11\x11", 2);
    }
    options.work.progress = nullptr;
    options.work.threads = 2;
    ASSERT_TRUE(convert_model(*model, dir_.path(out), options));
    const std::string found = values(out, "t");
    EXPECT_EQ(found.substr(0, 6), "\x11\x11\xc0\x3f\xc0\x3f");
    std::string rest;
    for (int i = 0; i < 999'999; ++i) rest += "\xc0\x3f";
    EXPECT_EQ(found.substr(2), rest);
    EXPECT_FALSE(fs::exists(dir_.path("out.safetensors.incomplete")));
    EXPECT_FALSE(fs::exists(dir_.path("folder.incomplete")));

    // Other options are other work.
    options.work.progress = [](std::uint64_t done, std::uint64_t total, std::string_view) { return done < total / 2; };
    EXPECT_FALSE(convert_model(*model, dir_.path(out), options));
    options.work.progress = nullptr;
    options.dtype = DType::kF16;
    ASSERT_TRUE(convert_model(*model, dir_.path(out), options));
    EXPECT_EQ(values(out, "t").substr(0, 2), std::string("\x00\x3e", 2));
  }
  EXPECT_TRUE(fails(convert_model(*model, dir_.path("w.mlx"), {.resume = true}), Errc::kInvalidArgument,
                    dir_.path("w.mlx") + ": only SafeTensors output can be resumed"));
}

TEST_F(Converting, ChecksTheOutputPathFirstEvenWithResume) {
  fs::create_directory(dir_.path("folder.safetensors"));
  EXPECT_TRUE(fails(convert("folder.safetensors", {.resume = true}), Errc::kWrite,
                    dir_.path("folder.safetensors") + ": cannot write: it is a directory"));
  EXPECT_FALSE(fs::exists(dir_.path("folder.safetensors.incomplete")));
}

TEST_F(Converting, KeepsTheMetadataUnlessOthersAreGiven) {
  const auto metadata = [&](const std::string& path) { return Model::open(dir_.path(path)).value().metadata(); };
  ASSERT_TRUE(convert("kept.safetensors"));
  EXPECT_EQ(metadata("kept.safetensors"), (Metadata{{"k", "v"}}));
  ASSERT_TRUE(convert("other.safetensors", {.metadata = Metadata{{"a", "b"}}}));
  EXPECT_EQ(metadata("other.safetensors"), (Metadata{{"a", "b"}}));
  ASSERT_TRUE(convert("none.safetensors", {.metadata = Metadata{}}));
  EXPECT_FALSE(Model::open(dir_.path("none.safetensors")).value().files()[0].has_metadata);
  ASSERT_TRUE(convert("empty.safetensors", {.metadata = Metadata{}, .sink = {.keep_empty_metadata = true}}));
  EXPECT_TRUE(Model::open(dir_.path("empty.safetensors")).value().files()[0].has_metadata);
}

TEST_F(Converting, MetadataOfTheSinkIsAnError) {
  EXPECT_TRUE(fails(convert("out.safetensors", {.sink = {.metadata = {{"a", "b"}}}}), Errc::kInvalidArgument,
                    "ConvertOptions::sink has metadata; set ConvertOptions::metadata instead"));
  EXPECT_FALSE(fs::exists(dir_.path("out.safetensors")));
}

TEST_F(Converting, AFileCutShortMeanwhileIsAnErrorOfTheInput) {
  const auto model = Model::open(dir_.path("in"));
  ASSERT_TRUE(model);
  fs::resize_file(dir_.path("in/model.safetensors"), fs::file_size(dir_.path("in/model.safetensors")) - 1);
  const auto done = convert_model(*model, dir_.path("out.safetensors"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::kIo);
  EXPECT_THAT(done.error().message, testing::HasSubstr("in/model.safetensors: file was truncated while open"));
  EXPECT_FALSE(fs::exists(dir_.path("out.safetensors")));
}

}  // namespace
}  // namespace ballast
