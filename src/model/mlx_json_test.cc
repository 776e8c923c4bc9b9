#include <gmock/gmock.h>

#include <ballast/model.h>
#include <ballast/values.h>
#include <ballast/verify.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;
using test::TempDir;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::string_view kDocument =
    R"({"metadata":{"format":"mlx"},"weights":{"a.weight":{"shape":[2,3],"dtype":"float32","data":[1,2,3,4,5,6]},)"
    R"("b":{"shape":[2],"dtype":"uint8","data":[7,8]}}})";

TEST(MlxJsonModel, FileIsAModelWithTheSizeOfTheFile) {
  const TempDir dir;
  const std::string path = dir.write("any.mlx", kDocument);
  const auto model = Model::open(path);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->format(), Format::kMlxJson);
  EXPECT_EQ(name(model->format()), "mlx-json");
  EXPECT_EQ(model->file_size(), kDocument.size());
  ASSERT_EQ(model->files().size(), 1);
  EXPECT_EQ(model->files()[0].size, kDocument.size());
  EXPECT_EQ(model->files()[0].data_start, 0);
  EXPECT_EQ(model->data_bytes(), 26);
  EXPECT_EQ(model->parameter_count(), 8);
  EXPECT_THAT(model->metadata(), ElementsAre(Pair("format", "mlx")));
  EXPECT_THAT(model->warnings(), IsEmpty());
}

TEST(MlxJsonModel, TensorsAreReadSlicedAndMeasured) {
  const auto model = Model::from_bytes(as_bytes(kDocument), "weights.mlx");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_text(model->read("b")->bytes()), "\7\x8");
  const std::array slices{Slice{}, Slice{.start = 1, .stop = std::nullopt, .step = 1}};
  const auto part = model->slice("a.weight", slices);
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_EQ(to_text(part->bytes()), raw({2.0F, 3.0F, 5.0F, 6.0F}));
  std::string bytes(3, '\0');
  ASSERT_TRUE(model->read_into("a.weight", 5, std::as_writable_bytes(std::span(bytes))));
  EXPECT_EQ(bytes, raw({1.0F, 2.0F, 3.0F}).substr(5, 3));
  const std::array<std::string_view, 1> names{"a.weight"};
  const auto stats = compute_stats(*model, names);
  ASSERT_TRUE(stats) << stats.error().message;
  EXPECT_EQ((*stats)[0]->mean, 3.5);
}

TEST(MlxJsonModel, HasNoViews) {
  const auto model = Model::from_bytes(as_bytes(kDocument), "weights.mlx");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->view("b"), Errc::kUnsupported,
                    "weights.mlx: tensor 'b': view() is not available for MLX JSON, which stores text; use read()"));
}

TEST(MlxJsonModel, ErrorsContainTheFileAndTheTensorOnce) {
  EXPECT_TRUE(fails(Model::from_bytes(as_bytes(R"({"weights":{"t":{"data":[x]}}})"), "w.mlx"), Errc::kCorrupt,
                    "w.mlx: tensor 't': element 0: expected a number at byte 25"));
  const std::string text = R"({"weights":{"t":{"shape":[2],"dtype":"float32","data":[1,1e39]}}})";
  const auto model = Model::from_bytes(as_bytes(text), "w.mlx");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->read("t"), Errc::kCorrupt, "w.mlx: tensor 't': element 1: '1e39' at byte 57 does not fit float32"));
}

TEST(MlxJsonModel, OtherSuffixesAreNotMlxJson) {
  EXPECT_TRUE(fails(Model::from_bytes(as_bytes(kDocument), "w.json"), Errc::kCorrupt,
                    "w.json: not a SafeTensors file; this looks like JSON: give the path of the weights or of their directory"));
}

TEST(MlxJsonModel, VerifyHashesTheFileAndReportsValuesThatDoNotFit) {
  const TempDir dir;
  const std::string good = dir.write("good.mlx", kDocument);
  std::uint64_t last_done = 0;
  std::uint64_t last_total = 0;
  const auto progress = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
    last_done = done;
    last_total = total;
    return true;
  };
  const auto report = verify_model(good, {.values = true, .sha256 = true, .work = {.progress = progress}});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->defects, IsEmpty());
  ASSERT_EQ(report->files.size(), 1);
  EXPECT_EQ(report->files[0].size, kDocument.size());
  EXPECT_EQ(report->files[0].tensors, 2);
  EXPECT_EQ(report->files[0].sha256, "0a754e470716ea24bab4f4ffe03f1312e031a3755699ebd4936044216c7a627e");
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_total, 26 + kDocument.size());

  const std::string bad = dir.write("bad.mlx", R"({"weights":{"t":{"shape":[1],"dtype":"uint8","data":[256]}}})");
  const auto defects = verify_model(bad, {.values = true});
  ASSERT_TRUE(defects) << defects.error().message;
  ASSERT_EQ(defects->defects.size(), 1);
  EXPECT_EQ(defects->defects[0].check, "values");
  EXPECT_EQ(defects->defects[0].message, bad + ": tensor 't': element 0: '256' at byte 53 does not fit uint8");
}

}  // namespace
}  // namespace ballast
