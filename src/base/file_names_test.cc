#include "base/file_names.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(FileNames, StemIsSharedByFileShardsAndIndex) {
  EXPECT_EQ(stem_of("adapter_model.safetensors"), "adapter_model");
  EXPECT_EQ(stem_of("diffusion_pytorch_model-00001-of-00002.safetensors"), "diffusion_pytorch_model");
  EXPECT_EQ(stem_of("diffusion_pytorch_model.safetensors.index.json"), "diffusion_pytorch_model");
  EXPECT_EQ(stem_of("consolidated.01.safetensors"), "consolidated");
  EXPECT_EQ(stem_of("model.fp16.safetensors"), "model");
}

TEST(FileNames, OtherNamesHaveTheUsualStem) {
  for (const char* name : {"", ".safetensors", "weights.mlx", "pytorch_model.bin", "-00001-of-00002.safetensors", "m"}) {
    EXPECT_EQ(stem_of(name), "model") << name;
  }
}

TEST(FileNames, ModelsHaveOneOfTheUsualStems) {
  EXPECT_TRUE(is_model_name("adapter_model.safetensors"));
  EXPECT_TRUE(is_model_name("pytorch_lora_weights.safetensors"));
  EXPECT_TRUE(is_model_name("epoch-00001-of-00002.safetensors"));
  EXPECT_FALSE(is_model_name("epoch1.safetensors"));
  EXPECT_FALSE(is_model_name("adapter_config.json"));
}

}  // namespace
}  // namespace ballast
