#include "jobs/companions.h"

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using testing::ElementsAre;

std::string names(const Companions& companions) {
  std::string text;
  for (const Companion& file : companions.files) text += file.name + " ";
  return text;
}

TEST(Companions, AreAllFilesButWeights) {
  const test::TempDir dir;
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "weights.mlx",
                           "pytorch_model.bin", "pytorch_model.bin.index.json", "m.gguf", ".hidden", "sub/file", "tokenizer.json",
                           "merges.txt", "LICENSE"}) {
    dir.write(name, "x");
  }
  dir.write("config.json", R"({"torch_dtype": "float32"})");
  const std::vector<std::string> weights{dir.path("model.safetensors")};
  const auto found = find_companions(Folder(dir.path()), weights, "bfloat16");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(names(*found), "LICENSE config.json merges.txt sub/file tokenizer.json ");
  EXPECT_THAT(found->not_copied, ElementsAre("m.gguf", "model-00001-of-00002.safetensors", "pytorch_model.bin",
                                             "pytorch_model.bin.index.json", "weights.mlx"));
  EXPECT_EQ(found->files[1].text, R"({"torch_dtype": "bfloat16"})");
  EXPECT_EQ(found->files[2].path, dir.path("merges.txt"));
}

TEST(Companions, WeightsOfListedModulesBelongToTheModel) {
  const test::TempDir dir;
  for (const char* name :
       {"model.safetensors", "1_Dense/model.safetensors", "1_Dense/pytorch_model.bin", "2_Dense/pytorch_model.bin",
        "2_Dense/config.json", "original/model.safetensors", ".cache/file", "x.incomplete"}) {
    dir.write(name, "x");
  }
  dir.write("modules.json", R"([{"path": ""}, {"path": "1_Dense"}, {"path": "2_Dense"}, {"name": "none"}])");
  const std::vector<std::string> weights{dir.path("model.safetensors")};
  const auto found = find_companions(Folder(dir.path()), weights, {});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(names(*found), "1_Dense/model.safetensors 2_Dense/config.json 2_Dense/pytorch_model.bin modules.json ");
  EXPECT_THAT(found->not_copied, ElementsAre("1_Dense/pytorch_model.bin", "original/model.safetensors", "x.incomplete"));
  EXPECT_EQ(describe_not_copied(found->not_copied),
            "not copied: 1_Dense/pytorch_model.bin, original/model.safetensors, x.incomplete");
}

TEST(Companions, InvalidListOfModulesIsAnError) {
  const test::TempDir dir;
  const std::string path = dir.write("modules.json", "[");
  EXPECT_TRUE(test::fails(find_companions(Folder(dir.path()), {}, {}), Errc::kCorrupt,
                          path + ": invalid JSON: The JSON document has an improper structure: missing or superfluous commas, "
                                 "braces, missing keys, etc."));
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
