#include "jobs/lora/unet_names.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

// With attentions in all up blocks but the first, as in Stable Diffusion 1.
std::string unet_name(std::string_view module) {
  return original_unet_name(module, [](std::string_view head) { return head != "up_blocks.0.attentions"; });
}

TEST(UnetNames, AreThoseOfTheOriginalFiles) {
  EXPECT_EQ(unet_name("conv_in"), "input_blocks.0.0");
  EXPECT_EQ(unet_name("time_embedding.linear_2"), "time_embed.2");
  EXPECT_EQ(unet_name("down_blocks.0.attentions.0.proj_in"), "input_blocks.1.1.proj_in");
  EXPECT_EQ(unet_name("down_blocks.1.attentions.1.transformer_blocks.0.attn1.to_out.0"),
            "input_blocks.5.1.transformer_blocks.0.attn1.to_out.0");
  EXPECT_EQ(unet_name("down_blocks.2.resnets.0.conv_shortcut"), "input_blocks.7.0.skip_connection");
  EXPECT_EQ(unet_name("down_blocks.1.downsamplers.0.conv"), "input_blocks.6.0.op");
  EXPECT_EQ(unet_name("mid_block.attentions.0.proj_out"), "middle_block.1.proj_out");
  EXPECT_EQ(unet_name("mid_block.resnets.1.time_emb_proj"), "middle_block.2.emb_layers.1");
  EXPECT_EQ(unet_name("up_blocks.0.resnets.2.conv2"), "output_blocks.2.0.out_layers.3");
  EXPECT_EQ(unet_name("up_blocks.1.attentions.2.proj_in"), "output_blocks.5.1.proj_in");
  EXPECT_EQ(unet_name("up_blocks.0.upsamplers.0.conv"), "output_blocks.2.1.conv");
  EXPECT_EQ(unet_name("up_blocks.1.upsamplers.0.conv"), "output_blocks.5.2.conv");
}

TEST(UnetNames, OtherModulesHaveNone) {
  for (const std::string_view module :
       {"", "x", "down_blocks", "down_blocks.x.resnets.0.conv1", "down_blocks.0.resnets.2.conv1", "down_blocks.0.resnets.0.conv9",
        "down_blocks.0.motion_modules.0.x", "up_blocks.0.downsamplers.0.conv", "mid_block.motion_modules.0.x",
        "down_blocks.100.attentions.0.x", "down_blocks.0.attentions.0"}) {
    EXPECT_EQ(unet_name(module), "") << module;
  }
}

}  // namespace
}  // namespace ballast
