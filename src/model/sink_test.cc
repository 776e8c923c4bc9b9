#include <ballast/sink.h>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::content;
using test::fails;
using test::raw;

std::vector<TensorSpec> two_tensors() {
  return {{.name = "a", .dtype = DType::kF32, .shape = {2}}, {.name = "b", .dtype = DType::kI32, .shape = {1}}};
}

TEST(Sink, AcceptsPiecesInAnyOrder) {
  const test::TempDir dir;
  const auto sink = create_sink(dir.path("m.safetensors"), two_tensors(), {.metadata = {{"k", "v"}}});
  ASSERT_TRUE(sink) << sink.error().message;
  ASSERT_TRUE((*sink)->write(1, 0, as_bytes(raw<std::int32_t>({7}))));
  ASSERT_TRUE((*sink)->write(0, 4, as_bytes(raw<float>({2}))));
  ASSERT_TRUE((*sink)->write(0, 0, as_bytes(raw<float>({1}))));
  EXPECT_TRUE(fs::is_empty(dir.path()));
  ASSERT_TRUE((*sink)->commit());

  const auto model = Model::open(dir.path("m.safetensors"));
  ASSERT_TRUE(model);
  EXPECT_EQ(test::to_text(model->read("a")->bytes()), raw<float>({1, 2}));
  EXPECT_EQ(test::to_text(model->read("b")->bytes()), raw<std::int32_t>({7}));
  EXPECT_EQ(model->metadata(), (Metadata{{"k", "v"}}));
}

TEST(Sink, RefusesUndeclaredTensorsAndBytes) {
  const test::TempDir dir;
  const auto sink = create_sink(dir.path("m.safetensors"), two_tensors());
  ASSERT_TRUE(sink);
  EXPECT_TRUE(fails((*sink)->write(2, 0, {}), Errc::kInvalidArgument, "tensor index 2 is out of range: 2 tensors were declared"));
  EXPECT_TRUE(fails((*sink)->write(0, 4, as_bytes("12345")), Errc::kInvalidArgument,
                    "tensor index 0: cannot write 5 bytes at offset 4, the tensor has 8 bytes"));
  ASSERT_TRUE((*sink)->write(0, 0, as_bytes("12345678")));
  EXPECT_TRUE(fails((*sink)->commit(), Errc::kInvalidArgument, "tensors are incomplete: 4 bytes were not written"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Sink, WritesShardsWithAnIndex) {
  const test::TempDir dir;
  std::vector<TensorView> tensors;
  const std::string bytes(600, 'x');
  const std::vector<std::uint64_t> shape{600};
  for (const char* name : {"a", "b", "c"}) {
    tensors.push_back({.name = name, .dtype = DType::kU8, .shape = shape, .bytes = as_bytes(bytes)});
  }
  const auto saved = save_tensors(dir.path("out"), tensors, {.max_shard_bytes = 1000});
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_TRUE(fs::exists(dir.path("out/model-00003-of-00003.safetensors")));
  const auto model = Model::open(dir.path("out"));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->files().size(), 3U);
  EXPECT_TRUE(model->warnings().empty());
  EXPECT_EQ(test::to_text(model->read("c")->bytes()), bytes);
}

TEST(Sink, WritesMlxJsonInOrder) {
  const test::TempDir dir;
  auto tensors = two_tensors();
  tensors.insert(tensors.begin() + 1, {.name = "empty", .dtype = DType::kF16, .shape = {0, 2}});
  const auto sink = create_sink(dir.path("w.mlx"), tensors);
  ASSERT_TRUE(sink) << sink.error().message;
  EXPECT_TRUE(fails((*sink)->write(2, 0, as_bytes("1234")), Errc::kInvalidArgument,
                    "MLX JSON must be written in order: expected byte 0 of tensor index 0, got byte 0 of tensor index 2"));
  EXPECT_TRUE(
      fails((*sink)->write(0, 0, as_bytes("123")), Errc::kInvalidArgument, "3 bytes is not a whole number of F32 values"));
  ASSERT_TRUE((*sink)->write(0, 0, as_bytes(raw<float>({1.5F}))));
  EXPECT_TRUE(fails((*sink)->commit(), Errc::kInvalidArgument, "tensor 'a' is incomplete: 4 of 8 bytes were written"));
  ASSERT_TRUE((*sink)->write(0, 4, as_bytes(raw<float>({-2}))));
  ASSERT_TRUE((*sink)->write(2, 0, as_bytes(raw<std::int32_t>({7}))));
  ASSERT_TRUE((*sink)->commit());
  const auto model = Model::open(dir.path("w.mlx"));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(test::to_text(model->read("a")->bytes()), raw<float>({1.5F, -2}));
  EXPECT_EQ(test::to_text(model->read("b")->bytes()), raw<std::int32_t>({7}));
  EXPECT_EQ(model->tensors().size(), 3U);
}

TEST(Sink, ModelMayHaveNoTensors) {
  const test::TempDir dir;
  for (const char* name : {"m.safetensors", "w.mlx", "folder"}) {
    const auto saved = save_tensors(dir.path(name), {});
    ASSERT_TRUE(saved) << saved.error().message;
    const auto model = Model::open(dir.path(name));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_TRUE(model->tensors().empty());
  }
  EXPECT_EQ(content(dir.path("m.safetensors")), test::safetensors("{}      "));
}

TEST(Sink, SavingReportsProgressAndCanBeCancelled) {
  const test::TempDir dir;
  const std::string data = raw<float>({1, 2, 3});
  const std::vector<std::uint64_t> shape{3};
  const std::vector<TensorView> tensors{{.name = "a", .dtype = DType::kF32, .shape = shape, .bytes = as_bytes(data)},
                                        {.name = "b", .dtype = DType::kF32, .shape = shape, .bytes = as_bytes(data)}};
  std::vector<std::uint64_t> seen;
  const auto keep = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
    EXPECT_EQ(total, 24);
    seen.push_back(done);
    return true;
  };
  ASSERT_TRUE(save_tensors(dir.path("m.safetensors"), tensors, {}, {.progress = keep}));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{12, 24}));

  const auto stop = [](std::uint64_t done, std::uint64_t total, std::string_view) { return done < total; };
  for (const char* name : {"n.safetensors", "w.mlx", "folder"}) {
    EXPECT_TRUE(fails(save_tensors(dir.path(name), tensors, {}, {.progress = stop}), Errc::kCancelled, "cancelled"));
    EXPECT_FALSE(fs::exists(dir.path(name)));
  }
}

TEST(Sink, NamesMustBeUniqueAcrossShards) {
  const test::TempDir dir;
  EXPECT_TRUE(
      fails(create_sink(dir.path("out"), {{.name = "t", .shape = {9}}, {.name = "t", .shape = {9}}}, {.max_shard_bytes = 1}),
            Errc::kInvalidArgument, dir.path("out") + ": duplicate tensor name 't'"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Sink, RefusesContradictingOptions) {
  const test::TempDir dir;
  const std::string path = dir.path("m.safetensors");
  EXPECT_TRUE(fails(create_sink(path, {}, {.format = Format::kMlxJson}), Errc::kInvalidArgument,
                    path + ": the suffix means safetensors, but the requested format is mlx-json"));
  EXPECT_TRUE(fails(create_sink(path, {}, {.max_shard_bytes = 5}), Errc::kInvalidArgument,
                    path + ": max_shard_size needs a directory as output, with SafeTensors files"));
  EXPECT_TRUE(fails(create_sink(dir.path("w.mlx"), {{.name = "\xff", .shape = {1}}}), Errc::kInvalidArgument,
                    dir.path("w.mlx") + ": tensor '\\xff': the name is not valid UTF-8"));
  EXPECT_TRUE(fails(create_sink(dir.path("m.gguf"), {}), Errc::kInvalidArgument,
                    dir.path("m.gguf") + ": cannot write .gguf files; give a .safetensors or .mlx file, or a directory"));
}

}  // namespace
}  // namespace ballast
