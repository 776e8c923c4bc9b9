#include "model/adapter.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

class Adapter : public testing::Test {
 protected:
  // What is found in a model of these matrices in a file or folder.
  std::string found(const std::string& file, const std::vector<std::string>& names, const std::string& open = "") const {
    std::string header;
    for (const std::string& name : names) {
      header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1,1],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",", name,
                            &name - names.data(), &name - names.data() + 1);
    }
    dir_.write(file, test::safetensors(header + "}", std::string(names.size(), '\0')));
    const auto model = Model::open(dir_.path(open.empty() ? file : open));
    if (!model) return model.error().message;
    const auto evidence = find_adapter(*model);
    return evidence ? evidence->value_or("-") : evidence.error().message;
  }
  test::TempDir dir_;
};

TEST_F(Adapter, IsKnownByItsFile) {
  EXPECT_EQ(found("adapter_model.safetensors", {"embed"}), "adapter_model.safetensors");
  EXPECT_EQ(found("a/pytorch_lora_weights.safetensors", {"x"}, "a"), "pytorch_lora_weights.safetensors");
}

TEST_F(Adapter, IsKnownByItsTensors) {
  EXPECT_EQ(found("a.safetensors", {"base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"}),
            "tensor 'base_model.model.q.lora_A.weight'");
  EXPECT_EQ(found("b.safetensors", {"lora_te_q.lora_down.weight", "lora_te_q.lora_up.weight"}),
            "tensor 'lora_te_q.lora_down.weight'");
  EXPECT_EQ(found("c.safetensors", {"unet_q.hada_w1_a"}), "tensor 'unet_q.hada_w1_a'");
}

TEST_F(Adapter, AModelWithLoraLayersIsAModel) {
  const std::vector<std::string> both{"q.base_layer.weight", "q.lora_A.weight"};
  EXPECT_EQ(found("model.safetensors", {"q.weight"}), "-");
  EXPECT_EQ(found("model.safetensors", both), "-");
  dir_.write("d/adapter_config.json", "{}");
  EXPECT_EQ(found("d/model.safetensors", both, "d"), "adapter_config.json");
  dir_.write("d/config.json", "{}");
  EXPECT_EQ(found("d/model.safetensors", both, "d"), "-");
}

}  // namespace
}  // namespace ballast
