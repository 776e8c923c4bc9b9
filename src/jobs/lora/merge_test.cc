#include "jobs/lora/merge.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/state.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::raw;
using test::TensorText;

// A base and an adapter in one folder.
class MergeLora : public testing::Test {
 protected:
  std::string base(const std::vector<TensorText>& tensors) const {
    return dir_.write("base.safetensors", test::safetensors(tensors, R"({"license":"mit"})"));
  }
  std::string adapter(const std::vector<TensorText>& tensors, std::string_view config = R"({"lora_alpha":4})") const {
    dir_.write("lora/adapter_config.json", config);
    return dir_.write("lora/adapter_model.safetensors", test::safetensors(tensors));
  }
  // A pair of rank 1 for the module.
  static std::vector<TensorText> pair(const std::string& module) {
    return {{module + ".lora_A.weight", DType::kF32, {1, 2}, raw<float>({1, 0.5F})},
            {module + ".lora_B.weight", DType::kF32, {2, 1}, raw<float>({2, -1})}};
  }
  static std::vector<float> values(const Result<Model>& model, std::string_view name) {
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return {};
    }
    return model->read<float>(name).value_or(std::vector<float>{});
  }
  test::TempDir dir_;
};

TEST_F(MergeLora, AddsTheScaledProduct) {
  const std::string model =
      base({{"q.weight", DType::kF32, {2, 2}, raw<float>({1, 2, 3, 4})}, {"n", DType::kF32, {1}, raw<float>({7})}});
  const Lora lora{.path = adapter(pair("base_model.model.q"))};
  const auto merged = open_merged(model, std::vector{lora});
  EXPECT_EQ(values(merged, "q.weight"), (std::vector<float>{9, 6, -1, 2}));
  EXPECT_EQ(values(merged, "n"), std::vector<float>{7});
  EXPECT_EQ(merged->metadata(), (Metadata{{"license", "mit"}}));
  EXPECT_EQ(ModelAccess::decoded(*merged)->names.size(), 1);
  const auto half = open_merged(model, std::vector{Lora{.path = lora.path, .scale = 0.5}, lora});
  EXPECT_EQ(values(half, "q.weight"), (std::vector<float>{13, 8, -3, 1}));
}

TEST_F(MergeLora, ReadsAnyPartOfATensor) {
  const std::string model = base({{"q.weight", DType::kF32, {2, 2}, raw<float>({1, 2, 3, 4})}});
  const auto merged = open_merged(model, std::vector{Lora{.path = adapter(pair("base_model.model.q"))}});
  ASSERT_TRUE(merged) << merged.error().message;
  const std::string whole = raw<float>({9, 6, -1, 2});
  for (std::size_t begin = 0; begin < whole.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= whole.size(); ++end) {
      std::string part(end - begin, '\0');
      ASSERT_TRUE(merged->read_into("q.weight", begin, std::as_writable_bytes(std::span(part))));
      EXPECT_EQ(part, whole.substr(begin, end - begin));
    }
  }
}

TEST_F(MergeLora, RoundsOnceToTheDtypeOfTheWeight) {
  // 1 + 2⁻⁸ + 2⁻¹⁸ is above the middle of two values of BF16. With the product rounded first it would be the middle.
  const std::string model = base({{"q.weight", DType::kBF16, {1, 1}, std::string("\x80\x3f", 2)}});
  const std::string path = adapter({{"base_model.model.q.lora_A.weight", DType::kF32, {1, 1}, raw<float>({0x1p-10F})},
                                    {"base_model.model.q.lora_B.weight", DType::kF32, {1, 1}, raw<float>({1.0009765625F})}});
  EXPECT_EQ(values(open_merged(model, std::vector{Lora{.path = path}}), "q.weight"), std::vector<float>{1.0078125F});
}

TEST_F(MergeLora, TransposesSquareWeightsAsTheConfigSays) {
  const std::string model = base({{"q.weight", DType::kF32, {2, 2}, raw<float>({1, 2, 3, 4})}});
  const std::string path = adapter(pair("base_model.model.q"), R"({"lora_alpha":4,"fan_in_fan_out":true})");
  EXPECT_EQ(values(open_merged(model, std::vector{Lora{.path = path}}), "q.weight"), (std::vector<float>{9, -2, 7, 2}));
}

TEST_F(MergeLora, ScalesByTheRankOrItsRoot) {
  const std::vector<TensorText> tensors{{"base_model.model.q.lora_A.weight", DType::kF32, {4, 1}, raw<float>({1, 0, 0, 0})},
                                        {"base_model.model.q.lora_B.weight", DType::kF32, {1, 4}, raw<float>({1, 0, 0, 0})}};
  const std::string model = base({{"q.weight", DType::kF32, {1, 1}}});
  const auto scale = [&](std::string_view config) {
    return values(open_merged(model, std::vector{Lora{.path = adapter(tensors, config)}}), "q.weight");
  };
  EXPECT_EQ(scale(R"({"lora_alpha":8})"), std::vector<float>{2});
  EXPECT_EQ(scale(R"({"lora_alpha":8,"use_rslora":true})"), std::vector<float>{4});
  EXPECT_EQ(scale(R"({"lora_alpha":8,"alpha_pattern":{"k":1,"q":2}})"), std::vector<float>{0.5F});
  EXPECT_EQ(scale(R"({"lora_alpha":8,"r":1,"rank_pattern":{"q":4}})"), std::vector<float>{2});
}

TEST_F(MergeLora, UnderscoresStandForDots) {
  const std::string model = base({{"a.to_q.weight", DType::kF32, {2, 2}, raw<float>({1, 2, 3, 4})}});
  const std::string path = dir_.write(
      "kohya.safetensors", test::safetensors({{"lora_unet_a_to_q.alpha", DType::kF32, {}, raw<float>({4})},
                                              {"lora_unet_a_to_q.lora_down.weight", DType::kF32, {1, 2}, raw<float>({1, 0.5F})},
                                              {"lora_unet_a_to_q.lora_up.weight", DType::kF32, {2, 1}, raw<float>({2, -1})}}));
  EXPECT_EQ(values(open_merged(model, std::vector{Lora{.path = path}}), "a.to_q.weight"), (std::vector<float>{9, 6, -1, 2}));
}

TEST_F(MergeLora, LayersOfAnotherStackAreNotTaken) {
  const std::string model = base({{"decoder.block.0.q.weight", DType::kF32, {2, 2}}});
  const std::string path = adapter(pair("base_model.model.encoder.block.0.q"));
  EXPECT_TRUE(fails(open_merged(model, std::vector{Lora{.path = path}}), Errc::kUnsupported,
                    path + ": tensor 'base_model.model.encoder.block.0.q.lora_A.weight': " + model +
                        " has no module 'encoder.block.0.q'; the closest is 'decoder.block.0.q'"));
}

TEST_F(MergeLora, HeadsThatMayBeTwoAreRefused) {
  const std::string model =
      base({{"text.layers.0.q.weight", DType::kF32, {2, 2}}, {"image.layers.0.q.weight", DType::kF32, {2, 2}}});
  const std::string path = adapter(pair("base_model.model.layers.0.q"));
  EXPECT_TRUE(
      fails(open_merged(model, std::vector{Lora{.path = path}}), Errc::kUnsupported,
            path + ": tensor 'base_model.model.layers.0.q.lora_A.weight': the module 'layers.0.q' may be 'text.layers.0.q' or "
                   "'image.layers.0.q'; rename the tensors of the adapter"));
}

TEST_F(MergeLora, ScalesThatAreNotFiniteAreRefused) {
  const std::string model = base({{"q.weight", DType::kF32, {2, 2}}});
  EXPECT_TRUE(fails(open_merged(model, std::vector{Lora{.path = "x", .scale = std::nan("")}}), Errc::kInvalidArgument,
                    "x: the scale is nan"));
}

}  // namespace
}  // namespace ballast
