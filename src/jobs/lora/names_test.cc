#include "jobs/lora/names.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

// "role|module", or why the tensor is refused.
std::string lora_name(std::string_view tensor) {
  const LoraName name = parse_lora_name(tensor);
  return name.part == LoraPart::kRefused ? name.why : name.role + "|" + name.module;
}

TEST(LoraNames, OfPeftHaveTheModule) {
  const LoraName down = parse_lora_name("base_model.model.model.layers.0.q_proj.lora_A.weight");
  EXPECT_EQ(down.part, LoraPart::kDown);
  EXPECT_EQ(down.module, "model.layers.0.q_proj");
  EXPECT_TRUE(down.is_peft);
  EXPECT_FALSE(down.is_flat);
  EXPECT_EQ(parse_lora_name("base_model.model.q.lora_B.default.weight").part, LoraPart::kUp);
  EXPECT_EQ(parse_lora_name("base_model.model.e.lora_embedding_A").part, LoraPart::kEmbeddingDown);
  // "transformer" is a module of GPT-2 here, not a component.
  EXPECT_EQ(lora_name("base_model.model.transformer.h.0.c_attn.lora_A.weight"), "|transformer.h.0.c_attn");
}

TEST(LoraNames, OfDiffusersHaveTheComponent) {
  EXPECT_EQ(lora_name("unet.mid.to_q.lora.down.weight"), "unet|mid.to_q");
  EXPECT_EQ(lora_name("transformer.blocks.0.to_q.lora_A.weight"), "transformer|blocks.0.to_q");
  EXPECT_EQ(lora_name("text_encoder_2.layers.0.q_proj.lora_linear_layer.up.weight"), "text_encoder_2|layers.0.q_proj");
  EXPECT_EQ(lora_name("unet.attn1.processor.to_out_lora.up.weight"), "unet|attn1.to_out.0");
  EXPECT_EQ(lora_name("diffusion_model.blocks.0.q.alpha"), "diffusion_model|blocks.0.q");
}

TEST(LoraNames, OfKohyaAreFlat) {
  const LoraName name = parse_lora_name("lora_te1_text_model_layers_0_q_proj.lora_down.weight");
  EXPECT_EQ(name.role, "lora_te1");
  EXPECT_EQ(name.module, "text_model_layers_0_q_proj");
  EXPECT_TRUE(name.is_flat);
  EXPECT_EQ(lora_name("lora_unet_mid_to_q.alpha"), "lora_unet|mid_to_q");
  EXPECT_EQ(lora_name("lora_tee_x.lora_up.weight"), "a module with an unknown prefix");
}

TEST(LoraNames, WholeTensorsAreThoseOfPeft) {
  EXPECT_EQ(parse_lora_name("base_model.model.lm_head.weight").part, LoraPart::kWhole);
  EXPECT_EQ(lora_name("base_model.model.lm_head.modules_to_save.default.weight"), "|lm_head.weight");
  EXPECT_EQ(lora_name("base_model.model.embed.base_layer.weight"), "|embed.weight");
  EXPECT_EQ(lora_name("lm_head.weight"), "not a part of an adapter");
}

TEST(LoraNames, OtherKindsOfAdaptersAreRefusedByName) {
  EXPECT_EQ(lora_name("base_model.model.q.lora_magnitude_vector"), "DoRA");
  EXPECT_EQ(lora_name("lora_unet_q.dora_scale"), "DoRA");
  EXPECT_EQ(lora_name("lora_unet_q.hada_w1_a"), "LoHa");
  EXPECT_EQ(lora_name("lora_unet_q.lokr_w2"), "LoKr");
  EXPECT_EQ(lora_name("lora_unet_q.lora_mid.weight"), "a Tucker decomposition");
  EXPECT_EQ(lora_name("base_model.model.q.lora_B.bias"), "a bias");
  EXPECT_EQ(lora_name("model.layers.0.q.lora_a"), "an adapter of mlx-lm");
  EXPECT_EQ(lora_name(".lora_A.weight"), "a tensor without a module");
  EXPECT_EQ(lora_name("x.lora_C.weight"), "an unknown part of an adapter");
}

TEST(LoraNames, RolesBelongToComponents) {
  EXPECT_TRUE(is_role_of("unet", "unet"));
  EXPECT_TRUE(is_role_of("lora_unet", "transformer"));
  EXPECT_TRUE(is_role_of("lora_te", "text_encoder"));
  EXPECT_TRUE(is_role_of("", "vae"));
  EXPECT_FALSE(is_role_of("lora_te2", "text_encoder"));
  EXPECT_FALSE(is_role_of("unet", "vae"));
  EXPECT_TRUE(has_role("text_encoder_3"));
  EXPECT_FALSE(has_role("vae"));
  EXPECT_FALSE(has_role(""));
}

}  // namespace
}  // namespace ballast
