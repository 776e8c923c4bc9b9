#include "jobs/companions.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

TEST(Companions, AreAllFilesButWeights) {
  const test::TempDir dir;
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "weights.mlx",
                           "pytorch_model.bin", "pytorch_model.bin.index.json", "m.gguf", ".hidden", "sub/file", "tokenizer.json",
                           "merges.txt", "LICENSE"}) {
    dir.write(name, "x");
  }
  dir.write("config.json", R"({"torch_dtype": "float32"})");
  const auto found = find_companions(Folder(dir.path()), "bfloat16");
  ASSERT_TRUE(found) << found.error().message;
  std::string names;
  for (const Companion& companion : *found) names += companion.name + " ";
  EXPECT_EQ(names, "LICENSE config.json merges.txt tokenizer.json ");
  EXPECT_EQ((*found)[1].text, R"({"torch_dtype": "bfloat16"})");
  EXPECT_EQ((*found)[2].path, dir.path("merges.txt"));
}

TEST(Companions, TheDTypeOfMostBytesCounts) {
  const auto of = [](DType dtype, std::uint64_t count) { return TensorSpec{.name = "t", .dtype = dtype, .shape = {count}}; };
  EXPECT_EQ(main_dtype(std::vector{of(DType::kF32, 10), of(DType::kBF16, 30), of(DType::kI64, 100)}), "bfloat16");
  EXPECT_EQ(main_dtype(std::vector{of(DType::kU8, 10)}), "");
}

TEST(Companions, OnlyTheDTypeOfAConfigChanges) {
  EXPECT_EQ(with_dtype("{\n \"a\":1.50, \"torch_dtype\" : \"float32\",\n \"text_config\": {\"dtype\":\"auto\", \"x\":NaN},"
                       "\"quantization_config\":{\"dtype\":\"int8\"}, "
                       "\"t_config\":{\"u_config\":{\"dtype\":\"x\"}},\"deep\":{\"dtype\":\"x\"}, \"b\":[\"torch_dtype\"]}",
                       "float16"),
            "{\n \"a\":1.50, \"torch_dtype\" : \"float16\",\n \"text_config\": {\"dtype\":\"float16\", \"x\":NaN},"
            "\"quantization_config\":{\"dtype\":\"int8\"}, "
            "\"t_config\":{\"u_config\":{\"dtype\":\"float16\"}},\"deep\":{\"dtype\":\"x\"}, \"b\":[\"torch_dtype\"]}");
  EXPECT_EQ(with_dtype(R"({"torch_dtype": null, "x": "torch_dtype"})", "float16"),
            R"({"torch_dtype": null, "x": "torch_dtype"})");
}

}  // namespace
}  // namespace ballast
