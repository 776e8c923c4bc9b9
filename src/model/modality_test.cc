#include "model/modality.h"

#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

Modality of_names(std::initializer_list<std::string_view> names) {
  std::vector<TensorInfo> tensors;
  for (const std::string_view name : names) tensors.push_back({.name = name});
  return detect_modality({}, tensors);
}

Modality of_architecture(const std::string& architecture) { return detect_modality({{"architecture", architecture}}, {}); }

TEST(Modality, HasNames) {
  EXPECT_EQ(name(Modality::kUnknown), "unknown");
  EXPECT_EQ(name(Modality::kText), "text");
  EXPECT_EQ(name(Modality::kCode), "code");
  EXPECT_EQ(name(Modality::kImage), "image");
  EXPECT_EQ(name(Modality::kAudio), "audio");
}

TEST(Modality, MetadataDecides) {
  const std::vector<TensorInfo> tensors{{.name = "lm_head.weight"}};
  EXPECT_EQ(detect_modality({{"modality", "Audio"}, {"architecture", "dit"}}, tensors), Modality::kAudio);
  EXPECT_EQ(detect_modality({{"modality", "code"}}, tensors), Modality::kCode);
}

TEST(Modality, UnknownWordInMetadataIsIgnored) {
  EXPECT_EQ(detect_modality({{"modality", "smell"}, {"architecture", "dit"}}, {}), Modality::kImage);
}

TEST(Modality, ArchitectureComesNext) {
  EXPECT_EQ(of_architecture("MDLM-small"), Modality::kText);
  EXPECT_EQ(of_architecture("sedd"), Modality::kText);
  EXPECT_EQ(of_architecture("TextDiffusion"), Modality::kText);
  EXPECT_EQ(of_architecture("CodeGen"), Modality::kCode);
  EXPECT_EQ(of_architecture("DiT-XL"), Modality::kImage);
  EXPECT_EQ(of_architecture("vae"), Modality::kImage);
  EXPECT_EQ(of_architecture("image"), Modality::kImage);
  EXPECT_EQ(of_architecture("WaveGrad"), Modality::kAudio);
  EXPECT_EQ(of_architecture("audio"), Modality::kAudio);
  EXPECT_EQ(of_architecture("mamba"), Modality::kUnknown);
}

TEST(Modality, NamesVoteLast) {
  EXPECT_EQ(of_names({"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"}), Modality::kText);
  EXPECT_EQ(of_names({"transformer.h.0.attn", "wte"}), Modality::kText);
  EXPECT_EQ(of_names({"unet.down_blocks.0", "unet.conv_in.weight", "lm_head.weight"}), Modality::kImage);
  EXPECT_EQ(of_names({"vocoder.0", "Mel_filters"}), Modality::kAudio);
  EXPECT_EQ(of_names({"weight", "bias"}), Modality::kUnknown);
  EXPECT_EQ(of_names({}), Modality::kUnknown);
}

TEST(Modality, TensorVotesOncePerModality) {
  EXPECT_EQ(of_names({"model.layers.0.self_attn.mlp.gate.layernorm", "conv_in", "conv_out"}), Modality::kImage);
}

TEST(Modality, TieGoesToText) { EXPECT_EQ(of_names({"conv_in", "lm_head"}), Modality::kText); }

}  // namespace
}  // namespace ballast
