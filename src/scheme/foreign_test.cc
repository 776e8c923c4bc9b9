#include "scheme/foreign.h"

#include <gmock/gmock.h>

#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::TempDir;
using test::TensorText;
using enum DType;

using Tensors = std::vector<TensorText>;

std::string message(std::string_view path, std::string_view how) {
  return fmt::format(
      "{}: weights are quantized {}, which Ballast cannot decode yet; dequantize them with the tool that made them first", path,
      how);
}

// A file without a directory, so that only its header tells.
Result<void> check_file(const Tensors& tensors, std::string_view metadata = {}) {
  const std::string bytes = test::safetensors(tensors, metadata);
  const auto model = Model::from_bytes(test::as_bytes(bytes), "m.safetensors");
  if (!model) return std::unexpected(model.error());
  return refuse_foreign(*model);
}

testing::AssertionResult file_refused(const Tensors& tensors, std::string_view how, std::string_view metadata = {}) {
  return fails(check_file(tensors, metadata), Errc::kUnsupported, message("m.safetensors", how));
}

struct SideText {
  std::string_view name;
  std::string_view text;
};

Result<void> check_directory(const TempDir& dir, const Tensors& tensors, const std::vector<SideText>& files) {
  dir.write("model.safetensors", test::safetensors(tensors));
  for (const SideText& file : files) dir.write(file.name, file.text);
  const auto model = Model::open(dir.path());
  if (!model) return std::unexpected(model.error());
  return refuse_foreign(*model);
}

testing::AssertionResult directory_refused(const Tensors& tensors, const std::vector<SideText>& files, std::string_view how) {
  const TempDir dir;
  return fails(check_directory(dir, tensors, files), Errc::kUnsupported, message(dir.path(), how));
}

testing::AssertionResult config_refused(const Tensors& tensors, std::string_view config, std::string_view how) {
  return directory_refused(tensors, {{.name = "config.json", .text = config}}, how);
}

testing::AssertionResult passes(const Result<void>& checked) {
  if (checked) return testing::AssertionSuccess();
  return testing::AssertionFailure() << checked.error().message;
}

testing::AssertionResult directory_passes(const Tensors& tensors, const std::vector<SideText>& files) {
  const TempDir dir;
  return passes(check_directory(dir, tensors, files));
}

Tensors plain() { return {{"a.weight", kBF16, {4, 32}}, {"norm.weight", kBF16, {32}}}; }

TEST(Foreign, CompressedTensorsPackQuantized) {
  const Tensors symmetric{{"a.weight_packed", kI32, {4, 4}}, {"a.weight_scale", kBF16, {4, 1}}, {"a.weight_shape", kI64, {2}}};
  EXPECT_TRUE(file_refused(symmetric, "as compressed-tensors (tensor 'a.weight_packed')"));
  EXPECT_TRUE(config_refused(symmetric,
                             R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}})",
                             "as compressed-tensors (config.json: quant_method 'compressed-tensors')"));
  Tensors asymmetric = symmetric;
  asymmetric.emplace_back("a.weight_zero_point", kI32, std::vector<std::uint64_t>{1, 1});
  asymmetric.emplace_back("a.weight_g_idx", kI32, std::vector<std::uint64_t>{32});
  EXPECT_TRUE(file_refused(asymmetric, "as compressed-tensors (tensor 'a.weight_packed')"));
}

TEST(Foreign, CompressedTensorsIntAndFloatQuantized) {
  for (const DType dtype : {kI8, kF8E4M3}) {
    const Tensors tensors{{"a.weight", dtype, {4, 32}}, {"a.weight_scale", kBF16, {4, 1}}, {"a.input_scale", kBF16, {1}}};
    EXPECT_TRUE(file_refused(tensors, "in an unknown way (tensor 'a.weight_scale' beside 'a.weight')"));
    EXPECT_TRUE(config_refused(tensors, R"({"compression_config": {"format": "float-quantized"}})",
                               "as compressed-tensors (config.json: compression_config)"));
    EXPECT_TRUE(config_refused(tensors, R"({"compression_config": {"quant_method": "compressed-tensors"}})",
                               "as compressed-tensors (config.json: quant_method 'compressed-tensors')"));
  }
  EXPECT_TRUE(file_refused({{"a.weight", kI8, {4, 32}}, {"a.weight_scale", kF16, {4, 1}}, {"a.weight_zero_point", kI8, {4, 1}}},
                           "as compressed-tensors (tensor 'a.weight_zero_point' beside 'a.weight')"));
}

TEST(Foreign, CompressedTensorsNvfp4PackQuantized) {
  EXPECT_TRUE(file_refused({{"a.weight_packed", kU8, {4, 16}},
                            {"a.weight_scale", kF8E4M3, {4, 2}},
                            {"a.weight_global_scale", kF32, {1}},
                            {"a.input_global_scale", kF32, {1}}},
                           "as compressed-tensors (tensor 'a.weight_packed')"));
}

TEST(Foreign, CompressedTensorsMxfp4AndMxfp8) {
  EXPECT_TRUE(file_refused({{"a.weight_packed", kU8, {4, 16}}, {"a.weight_scale", kU8, {4, 1}}},
                           "as compressed-tensors (tensor 'a.weight_packed')"));
  EXPECT_TRUE(file_refused({{"a.weight", kF8E4M3, {4, 32}}, {"a.weight_scale", kU8, {4, 1}}},
                           "in an unknown way (tensor 'a.weight_scale' beside 'a.weight')"));
}

TEST(Foreign, Fp8InBlocks) {
  for (const DType dtype : {kF32, kBF16, kF8E8M0, kU8}) {
    const Tensors tensors{{"a.weight", kF8E4M3, {4, 32}}, {"a.weight_scale_inv", dtype, {1, 1}}};
    EXPECT_TRUE(file_refused(tensors, "as fp8 (tensor 'a.weight_scale_inv' beside 'a.weight')"));
    EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
                               "as fp8 (config.json: quant_method 'fp8')"));
  }
  EXPECT_TRUE(file_refused({{"experts.gate_up_proj", kF8E4M3, {2, 4, 32}}, {"experts.gate_up_proj_scale_inv", kF32, {2, 1, 1}}},
                           "as fp8 (tensor 'experts.gate_up_proj_scale_inv' beside 'experts.gate_up_proj')"));
}

TEST(Foreign, Fp8OfDeepSeekV4) {
  for (const DType dtype : {kF8E4M3, kI8}) {
    EXPECT_TRUE(file_refused({{"a.weight", dtype, {4, 32}}, {"a.scale", kF8E8M0, {4, 1}}},
                             "in an unknown way (tensor 'a.scale' beside 'a.weight')"));
  }
}

TEST(Foreign, Fp8PerTensorAndFbgemm) {
  EXPECT_TRUE(file_refused({{"a.weight", kF8E4M3, {4, 32}}, {"a.weight_scale", kF32, {}}, {"a.input_scale", kF32, {}}},
                           "in an unknown way (tensor 'a.weight_scale' beside 'a.weight')"));
  EXPECT_TRUE(file_refused({{"a.weight", kF8E4M3, {4, 32}}, {"a.weight_scale_inv", kF32, {}}, {"a.activation_scale", kF32, {}}},
                           "as fp8 (tensor 'a.weight_scale_inv' beside 'a.weight')"));
  EXPECT_TRUE(config_refused({{"a.weight", kF8E4M3, {4, 32}}, {"a.weight_scale", kF32, {4, 1}}},
                             R"({"quantization_config": {"quant_method": "fbgemm_fp8"}})",
                             "as fbgemm_fp8 (config.json: quant_method 'fbgemm_fp8')"));
}

TEST(Foreign, ModelOptFp8) {
  const std::vector<TensorText> scales{{"a.weight_scale", kF32, {}},
                                       {"a.weight_scale", kF32, {4}},
                                       {"a.weight_scale", kF32, {1, 1, 1, 1}},
                                       {"a.weight_scale", kU8, {4, 1}}};
  for (const TensorText& scale : scales) {
    const Tensors tensors{{"a.weight", kF8E4M3, {4, 32}}, scale};
    EXPECT_TRUE(file_refused(tensors, "in an unknown way (tensor 'a.weight_scale' beside 'a.weight')"));
    EXPECT_TRUE(directory_refused(tensors, {{"hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})"}},
                                  "as modelopt (hf_quant_config.json: quant_algo 'FP8')"));
  }
}

TEST(Foreign, ModelOptNvfp4) {
  const Tensors tensors{{"a.weight", kU8, {4, 16}},
                        {"a.weight_scale", kF8E4M3, {4, 2}},
                        {"a.weight_scale_2", kF32, {}},
                        {"a.input_scale", kF32, {}}};
  EXPECT_TRUE(file_refused(tensors, "as modelopt (tensor 'a.weight_scale_2' beside 'a.weight')"));
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})",
                             "as modelopt (config.json: quant_method 'modelopt')"));
  EXPECT_TRUE(file_refused({{"experts.down_proj", kU8, {2, 4, 16}},
                            {"experts.down_proj_weight_scale", kF8E4M3, {2, 4, 2}},
                            {"experts.down_proj_weight_scale_2", kF32, {}}},
                           "as modelopt (tensor 'experts.down_proj_weight_scale_2' beside 'experts.down_proj')"));
}

TEST(Foreign, ModelOptW4A16Awq) {
  EXPECT_TRUE(file_refused({{"a.weight", kU8, {2, 32}}, {"a.weight_scale", kBF16, {4, 1}}, {"a.pre_quant_scale", kBF16, {32}}},
                           "as modelopt (tensor 'a.pre_quant_scale' beside 'a.weight')"));
}

TEST(Foreign, Gptq) {
  const Tensors tensors{
      {"a.g_idx", kI32, {32}}, {"a.qweight", kI32, {4, 8}}, {"a.qzeros", kI32, {1, 1}}, {"a.scales", kF16, {1, 8}}};
  EXPECT_TRUE(file_refused(tensors, "as gptq (tensor 'a.g_idx' beside 'a.qweight')"));
  for (const std::string_view method : {"gptq", "gptq_v2", "gptq_p", "auto-round"}) {
    EXPECT_TRUE(config_refused(
        tensors, fmt::format(R"({{"quantization_config": {{"quant_method": "{}", "bits": 4, "group_size": 32}}}})", method),
        fmt::format("as {0} (config.json: quant_method '{0}')", method)));
  }
  // Older files have a section like MLX's.
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"bits": 4, "group_size": 32}})",
                             "as gptq (tensor 'a.g_idx' beside 'a.qweight')"));
}

TEST(Foreign, Awq) {
  const Tensors tensors{{"a.qweight", kI32, {32, 1}}, {"a.qzeros", kI32, {1, 1}}, {"a.scales", kF16, {1, 8}}};
  EXPECT_TRUE(file_refused(tensors, "as awq (tensor 'a.qzeros' beside 'a.qweight')"));
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemm"}})",
                             "as awq (config.json: quant_method 'awq')"));
  const Tensors symmetric{{"a.qweight", kI32, {32, 1}}, {"a.scales", kF16, {1, 8}}};
  EXPECT_TRUE(file_refused(symmetric, "in an unknown way (tensor 'a.qweight' beside 'a.scales')"));
  EXPECT_TRUE(directory_refused(symmetric, {{"quant_config.json", R"({"w_bit": 4, "q_group_size": 128})"}},
                                "as awq (quant_config.json: w_bit 4)"));
  EXPECT_TRUE(directory_refused(symmetric, {{"quantize_config.json", R"({"bits": 4, "group_size": 128})"}},
                                "as gptq (quantize_config.json: bits 4)"));
}

TEST(Foreign, BitsAndBytesIn8Bits) {
  const Tensors tensors{{"a.weight", kI8, {4, 32}}, {"a.SCB", kF32, {4}}, {"a.weight_format", kU8, {}}};
  EXPECT_TRUE(file_refused(tensors, "as bitsandbytes (tensor 'a.SCB' beside 'a.weight')"));
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"load_in_4bit": false, "load_in_8bit": true}})",
                             "as bitsandbytes (config.json: load_in_8bit true)"));
}

TEST(Foreign, BitsAndBytesIn4Bits) {
  for (const DType storage : {kU8, kBF16, kF32}) {
    const Tensors tensors{{"a.weight", storage, {64, 1}},        {"a.weight.absmax", kU8, {2}},
                          {"a.weight.nested_absmax", kF32, {1}}, {"a.weight.nested_quant_map", kF32, {256}},
                          {"a.weight.quant_map", kF32, {16}},    {"a.weight.quant_state.bitsandbytes__nf4", kU8, {8}}};
    EXPECT_TRUE(file_refused(tensors, "as bitsandbytes (tensor 'a.weight.absmax' beside 'a.weight')"));
    EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"load_in_4bit": true}})",
                               "as bitsandbytes (config.json: load_in_4bit true)"));
  }
}

TEST(Foreign, Mxfp4OfGptOss) {
  const Tensors tensors{{"mlp.experts.gate_up_proj_blocks", kU8, {2, 4, 1, 16}},
                        {"mlp.experts.gate_up_proj_scales", kU8, {2, 4, 1}},
                        {"mlp.experts.gate_up_proj_bias", kBF16, {2, 4}}};
  EXPECT_TRUE(
      file_refused(tensors, "as mxfp4 (tensor 'mlp.experts.gate_up_proj_blocks' beside 'mlp.experts.gate_up_proj_scales')"));
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"quant_method": "mxfp4"}})",
                             "as mxfp4 (config.json: quant_method 'mxfp4')"));
  EXPECT_TRUE(
      file_refused({{"block.0.mlp.mlp1_weight.blocks", kU8, {2, 4, 1, 16}}, {"block.0.mlp.mlp1_weight.scales", kU8, {2, 4, 1}}},
                   "as mxfp4 (tensor 'block.0.mlp.mlp1_weight.blocks' beside 'block.0.mlp.mlp1_weight.scales')"));
}

TEST(Foreign, ComfyUiFloat8) {
  for (const DType dtype : {kF8E4M3, kF8E5M2}) {
    const Tensors tensors{{"a.weight", dtype, {4, 32}}, {"a.weight_scale", kF32, {}}, {"a.input_scale", kF32, {}}};
    EXPECT_TRUE(file_refused(tensors, "as comfyui (m.safetensors: metadata '_quantization_metadata')",
                             R"({"_quantization_metadata":"{\"format_version\":\"1.0\",\"layers\":{}}"})"));
    EXPECT_TRUE(file_refused({{"a.weight", dtype, {4, 32}}, {"a.scale_weight", kF32, {}}, {"a.scale_input", kF32, {}}},
                             "as comfyui (tensor 'a.scale_weight' beside 'a.weight')"));
    EXPECT_TRUE(
        file_refused({{"a.weight", dtype, {4, 32}}, {"model.scaled_fp8", dtype, {2}}}, "as comfyui (tensor 'model.scaled_fp8')"));
  }
}

TEST(Foreign, ComfyUiNvfp4AndMxfp8) {
  EXPECT_TRUE(file_refused({{"a.weight", kU8, {16, 16}},
                            {"a.weight_scale", kF8E4M3, {128, 4}},
                            {"a.weight_scale_2", kF32, {}},
                            {"a.comfy_quant", kU8, {19}}},
                           "as comfyui (tensor 'a.comfy_quant')"));
  EXPECT_TRUE(file_refused({{"a.weight", kF8E4M3, {32, 32}}, {"a.weight_scale", kU8, {128, 4}}, {"a.comfy_quant", kU8, {18}}},
                           "as comfyui (tensor 'a.comfy_quant')"));
}

TEST(Foreign, Metal) {
  const Tensors tensors{{"a.weight", kU32, {4, 4}}, {"a.scales", kBF16, {4, 1}}, {"a.qbiases", kBF16, {4, 1}}};
  EXPECT_TRUE(file_refused(tensors, "as metal (tensor 'a.qbiases' beside 'a.scales')"));
  EXPECT_TRUE(config_refused(tensors, R"({"quantization_config": {"quant_method": "metal", "bits": 4, "group_size": 32}})",
                             "as metal (config.json: quant_method 'metal')"));
}

TEST(Foreign, TorchAo) {
  EXPECT_TRUE(file_refused({{"a._weight_qdata", kI8, {4, 32}}, {"a._weight_scale", kF32, {4, 1}}},
                           "as torchao (tensor 'a._weight_qdata')"));
}

TEST(Foreign, MistralFp8) {
  EXPECT_TRUE(directory_refused({{"layers.0.attention.wq.weight", kF8E4M3, {4, 32}},
                                 {"layers.0.attention.wq.qscale_weight", kF32, {}},
                                 {"layers.0.attention.wq.qscale_act", kF32, {}}},
                                {{"params.json", R"({"quantization": {"qformat_weight": "fp8_e4m3"}})"}},
                                "as fp8 (params.json: qformat_weight 'fp8_e4m3')"));
}

TEST(Foreign, SectionsOfTheConfigCount) {
  EXPECT_TRUE(config_refused(plain(), R"({"text_config": {"quantization_config": {"quant_method": "awq", "bits": 4}}})",
                             "as awq (config.json: text_config: quant_method 'awq')"));
}

TEST(Foreign, MethodIsShownOnOneLine) {
  EXPECT_TRUE(config_refused(plain(), R"({"quantization_config": {"quant_method": "x\u001b[2J\n"}})",
                             R"(as x\x1b[2j\n (config.json: quant_method 'x\x1b[2J\n'))"));
  for (const std::string_view method : {"7", "[1]"}) {
    EXPECT_TRUE(config_refused(plain(), fmt::format(R"({{"quantization_config": {{"quant_method": {}}}}})", method),
                               fmt::format("in an unknown way (config.json: quant_method {})", method)));
  }
  const std::string longest(100, 'x');
  EXPECT_TRUE(config_refused(plain(), fmt::format(R"({{"quantization_config": {{"quant_method": "{}"}}}})", longest),
                             fmt::format("in an unknown way (config.json: quant_method '{}…')", longest.substr(0, 80))));
}

TEST(Foreign, NamesAreShownOnOneLine) {
  EXPECT_TRUE(file_refused({{R"(\n.weight_packed)", kI32, {1, 1}}}, R"(as compressed-tensors (tensor '\n.weight_packed'))"));
}

TEST(Foreign, TensorsOfAllShardsCount) {
  const TempDir dir;
  dir.write("model-00001-of-00002.safetensors", test::safetensors({{"a.weight", kF8E4M3, {4, 32}}}));
  dir.write("model-00002-of-00002.safetensors", test::safetensors({{"a.weight_scale_inv", kF32, {1, 1}}}));
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(refuse_foreign(*model), Errc::kUnsupported,
                    message(dir.path(), "as fp8 (tensor 'a.weight_scale_inv' beside 'a.weight')")));
}

TEST(Foreign, ParametersCountWithoutTheirCodes) {
  for (const std::string_view name : {"a.weight_scale", "a.weight_scale_inv", "a.weight_scale_2", "a.pre_quant_scale", "a.SCB",
                                      "a.weight.absmax", "a.weight.quant_map", "a.weight.nested_absmax", "a.scale_input"}) {
    const std::string bytes = test::safetensors(Tensors{{name, kF32, {4}}, {"b.weight", kBF16, {4, 4}}});
    const auto model = Model::from_bytes(test::as_bytes(bytes), "m.safetensors");
    ASSERT_TRUE(model) << model.error().message;
    const auto found = find_foreign(*model);
    ASSERT_TRUE(found && *found) << name;
    EXPECT_EQ((*found)->evidence, fmt::format("tensor '{}'", name));
  }
}

TEST(Foreign, SideFilesCountBesideCodes) {
  const Tensors codes{{"a.weight", kF8E4M3, {4, 32}}};
  EXPECT_TRUE(directory_refused(codes, {{"hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})"}},
                                "as modelopt (hf_quant_config.json: quant_algo 'FP8')"));
  EXPECT_TRUE(directory_refused(codes, {{"quantize_config.json", R"({"bits": 8, "quant_method": "gptq_v2"})"}},
                                "as gptq_v2 (quantize_config.json: quant_method 'gptq_v2')"));
  EXPECT_TRUE(directory_refused(codes, {{"quantization_config.json", R"({"quant_method": "quark"})"}},
                                "as quark (quantization_config.json: quant_method 'quark')"));
}

TEST(Foreign, SideFilesThatTellOfNoWeightsPass) {
  const Tensors codes{{"a.weight", kF8E4M3, {4, 32}}};
  const std::string_view gptq = R"({"bits": 4, "group_size": 128})";
  EXPECT_TRUE(directory_passes(plain(), {{"quantize_config.json", gptq}}));
  EXPECT_TRUE(directory_passes(codes, {{"hf_quant_config.json", R"({"quantization": {"quant_algo": null}})"},
                                       {"quantize_config.json", R"({"per_channel": true, "reduce_range": true})"},
                                       {"quant_config.json", "[]"}}));
}

TEST(Foreign, SideFileThatIsNoJsonIsAnError) {
  const TempDir dir;
  const auto checked = check_directory(dir, {{"a.weight", kF8E4M3, {4, 32}}}, {{"quant_config.json", "{"}});
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, Errc::kCorrupt);
  EXPECT_THAT(checked.error().message, testing::StartsWith(dir.path("quant_config.json") + ": invalid JSON: "));
}

TEST(Foreign, PlainModelsPass) {
  const std::vector<Tensors> models{
      {},
      plain(),
      {{"a.weight", kF8E4M3, {4, 32}}, {"b.weight", kF8E5M2, {4, 32}}},                      // casts
      {{"conv.weight", kF8E4M3, {4, 32}}, {"conv.scale", kF8E4M3, {4}}},                     // likewise
      {{"conv.weight", kF32, {4, 32}}, {"conv.scale", kF32, {4}}},                           // a scaled layer
      {{"text.logit_scale", kF32, {}}, {"logit_scale", kF32, {}}, {"logit", kF32, {4, 4}}},  // CLIP
      {{"blocks.0.layer_scale_1.gamma", kF32, {4}}, {"blocks.0.ls1.scale", kF32, {4}}},      // DINOv2
      {{"layers.0.layer_scale", kF32, {4}}, {"layers.0.layer.weight", kF32, {4, 4}}},
      {{"img_attn.norm.query_norm.scale", kBF16, {4}}, {"img_attn.qkv.weight", kBF16, {12, 4}}},  // Flux
      {{"block.0.attn.norm.scale", kBF16, {4}}, {"block.0.attn.sinks", kBF16, {4}}},              // gpt-oss
      {{"block.0.layer.0.SelfAttention.relative_attention_bias.weight", kF32, {32, 4}}},          // T5
      {{"vision_model.embeddings.position_embedding.weight", kF32, {4, 4}}, {"position_ids", kI64, {1, 4}}},
      {{"h.0.attn.bias", kU8, {1, 1, 4, 4}}, {"h.0.attn.c_attn.weight", kF32, {4, 12}}},           // GPT-2
      {{"attn.k_scale", kF32, {}}, {"attn.v_scale", kF32, {}}, {"attn.k.weight", kBF16, {4, 4}}},  // scales of a KV cache
      {{"act.scales", kF16, {4}}, {"act.weight", kF16, {4}}},                                      // AWQ, dequantized
      {{"conv.weight_g", kF32, {4, 1}}, {"conv.weight_v", kF32, {4, 4}}},                          // weight norm
      {{"codebook.absmax", kF32, {4}}, {"a_weight_scale", kF32, {4}}, {"b.qweight", kF32, {4, 4}}},
      {{"down_blocks", kF32, {4, 4}}, {"up_scales", kF32, {4}}, {"a.scale_weight", kF32, {4}}},
  };
  for (std::size_t i = 0; i < models.size(); ++i) {
    EXPECT_TRUE(passes(check_file(models[i]))) << i;
    EXPECT_TRUE(directory_passes(models[i], {{"config.json", R"({"model_type": "llama", "quantization_config": null})"}})) << i;
  }
}

TEST(Foreign, ConfigsThatNameNoQuantizerPass) {
  for (const std::string_view section : {"null", "{}", R"({"quant_method": null})", R"({"load_in_4bit": false})", "[]"}) {
    const std::string config = fmt::format(R"({{"quantization_config": {0}, "compression_config": null}})", section);
    EXPECT_TRUE(directory_passes(plain(), {{"config.json", config}})) << config;
  }
}

TEST(Foreign, MlxPasses) {
  const Tensors affine{{"a.weight", kU32, {4, 4}}, {"a.scales", kBF16, {4, 1}}, {"a.biases", kBF16, {4, 1}}};
  const Tensors mxfp4{{"a.weight", kU32, {4, 4}}, {"a.scales", kU8, {4, 1}}};
  for (const Tensors& tensors : {affine, mxfp4}) EXPECT_TRUE(passes(check_file(tensors)));
  for (const std::string_view key : {"quantization", "quantization_config"}) {
    EXPECT_TRUE(directory_passes(affine, {{"config.json", fmt::format(R"({{"{}": {{"bits": 4, "group_size": 32}}}})", key)}}));
    EXPECT_TRUE(directory_passes(
        mxfp4, {{"config.json", fmt::format(R"({{"{}": {{"bits": 4, "group_size": 32, "mode": "mxfp4"}}}})", key)}}));
  }
  for (const std::string_view section : {R"({"quant_method": "mlx", "bits": 4})", R"({"quant_method": "affine"})",
                                         R"({"quant_method": "mxfp4", "mode": "mxfp4", "bits": 4})"}) {
    EXPECT_TRUE(directory_passes(affine, {{"config.json", fmt::format(R"({{"quantization_config": {}}})", section)}}));
  }
  EXPECT_TRUE(directory_passes(affine, {{"quantization_config.json", R"({"bits": 4, "group_size": 32})"}}));
}

TEST(Foreign, MlxPassesWithTheConfigOfTheOriginal) {
  EXPECT_TRUE(directory_passes({{"a.weight", kU32, {4, 4}}, {"a.scales", kU8, {4, 1}}},
                               {{"config.json", R"({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"},
                           "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})"},
                                {"hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})"}}));
}

TEST(Foreign, CodesOfMlxWithTheConfigOfTheOriginalAreRefused) {
  const TempDir dir;
  dir.write("config.json", R"({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"},
                               "quantization_config": {"quant_method": "mxfp4"}})");
  dir.write("model.safetensors", test::safetensors({{"a.weight", kU32, {4, 4}}, {"a.scales", kU8, {4, 1}}}));
  const auto model = Model::open(dir.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(refuse_codes(*model), Errc::kUnsupported,
                    dir.path() + ": tensor 'a.weight' is already quantized; dequantize the model first"));
}

}  // namespace
}  // namespace ballast
