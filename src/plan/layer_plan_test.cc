#include "plan/layer_plan.h"

#include <gmock/gmock.h>

#include "base/checked.h"
#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::IsEmpty;

struct Weight {
  std::string name;
  std::vector<std::uint64_t> shape = {128, 128};
  DType dtype = DType::kBF16;
};

// A model of zeros.
class TestModel {
 public:
  explicit TestModel(const std::vector<Weight>& weights) : bytes_(file_of(weights)) {}

  Result<Plan> plan(const QuantizeConfig& config) const { return Plan::make(model_, config); }

  // Each tensor that is quantized, and its bits: "a 4, b 8".
  std::string bits_of(const QuantizeConfig& config) const {
    const auto plans = plan(config);
    if (!plans) return plans.error().message;
    std::string text;
    for (std::size_t i = 0; i < plans->size(); ++i) {
      const unsigned bits = (*plans)[i].bits;
      if (bits != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", model_.tensors()[i].name, bits);
    }
    return text;
  }

 private:
  static std::string file_of(const std::vector<Weight>& weights) {
    std::string header;
    std::uint64_t end = 0;
    for (const Weight& weight : weights) {
      const std::uint64_t begin = end;
      end += checked_elements(weight.shape).value() * bits(weight.dtype) / 8;
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",",
                            weight.name, name(weight.dtype), fmt::join(weight.shape, ","), begin, end);
    }
    return test::safetensors(header + "}", std::string(end, '\0'));
  }

  std::string bytes_;
  Model model_ = *Model::from_bytes(test::as_bytes(bytes_), "m");
};

TEST(LayerPlan, ParquetTakesFloatsOfTwoDimsAndMore) {
  using enum DType;
  const TestModel model({{.name = "conv", .shape = {3, 4, 5, 7}},
                         {.name = "line", .shape = {64}},
                         {.name = "lone", .shape = {}},
                         {.name = "matrix", .shape = {2, 100}},
                         {.name = "none", .shape = {2, 0, 3}},
                         {.name = "one", .shape = {1, 1}}});
  const auto plans = model.plan({.bit_width = 3, .group_size = 256});
  ASSERT_TRUE(plans) << plans.error().message;
  const auto show = [](const LayerPlan& plan) {
    return fmt::format("{} bits, groups of {}, {} x {}", plan.bits, plan.group_size, plan.rows, plan.columns);
  };
  std::vector<std::string> shown;
  for (const LayerPlan& plan : plans->layers()) shown.push_back(show(plan));
  EXPECT_THAT(shown,
              testing::ElementsAre("3 bits, groups of 256, 3 x 140", "0 bits, groups of 0, 0 x 0", "0 bits, groups of 0, 0 x 0",
                                   "3 bits, groups of 256, 2 x 100", "0 bits, groups of 0, 0 x 0", "0 bits, groups of 0, 0 x 0"));
}

TEST(LayerPlan, WhatWouldGrowAndMasksStayUnquantized) {
  const TestModel model({{.name = "attn.bias", .shape = {1, 1, 64, 64}},
                         {.name = "column.weight", .shape = {64, 1}, .dtype = DType::kF64},
                         {.name = "conv.weight", .shape = {64, 1, 2}},
                         {.name = "layers.0.attn_mask", .shape = {4, 64, 64}},
                         {.name = "mask_decoder.proj.weight", .shape = {64, 64}},
                         {.name = "small.weight", .shape = {64, 2}}});
  EXPECT_EQ(model.bits_of({.group_size = 64}), "mask_decoder.proj.weight 4");
  EXPECT_EQ(model.bits_of({.group_size = 64, .layer_bit_widths = {{"small.weight", 4}}}),
            "mask_decoder.proj.weight 4, small.weight 4");
  const TestModel column({{.name = "gate.weight", .shape = {64, 1}}, {.name = "up.weight", .shape = {64, 64}}});
  EXPECT_EQ(column.bits_of({.group_size = 64, .format = QuantizeFormat::kMlx}), "up.weight 4");
  const TestModel codes({{.name = "w", .shape = {4, 64}, .dtype = DType::kF8E4M3}});
  EXPECT_EQ(codes.bits_of({.bit_width = 8, .group_size = 64}), "");
}

TEST(LayerPlan, OnlySignedFloatsAreQuantized) {
  const std::vector<DType> quantized{DType::kF64,    DType::kF32,    DType::kF16,        DType::kBF16,
                                     DType::kF8E5M2, DType::kF8E4M3, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz};
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    const TestModel model({{.name = "w", .shape = {4, 64}, .dtype = dtype}});
    const bool is_quantized = std::ranges::find(quantized, dtype) != quantized.end();
    EXPECT_EQ(model.bits_of({}), is_quantized ? "w 4" : "") << name(dtype);
    EXPECT_EQ(model.bits_of({.group_size = 64, .format = QuantizeFormat::kMlx}), is_quantized ? "w 4" : "") << name(dtype);
  }
}

TEST(LayerPlan, MlxTakesMatricesAndExperts) {
  const TestModel model({{.name = "conv1d.weight", .shape = {64, 64, 64}},
                         {.name = "depth_conv.weight", .shape = {64, 64}},
                         {.name = "expert_conv.weight", .shape = {2, 2, 64}},
                         {.name = "mlp.experts.down_proj", .shape = {2, 3, 128}},
                         {.name = "mlp.experts.down_proj_bias", .shape = {2, 64}},
                         {.name = "mlp.switch_mlp.up_proj.weight", .shape = {4, 5, 64}},
                         {.name = "norm1.linear.weight", .shape = {7, 64}},
                         {.name = "q_norm.weight", .shape = {8, 64}},
                         {.name = "q_proj.bias", .shape = {64}},
                         {.name = "up.experts.w", .shape = {2, 2, 2, 64}}});
  const QuantizeConfig config{.group_size = 64, .format = QuantizeFormat::kMlx};
  EXPECT_EQ(model.bits_of(config), "mlp.experts.down_proj 4, mlp.switch_mlp.up_proj.weight 4, norm1.linear.weight 4");
  const auto plans = model.plan(config);
  ASSERT_TRUE(plans) << plans.error().message;
  EXPECT_EQ((*plans)[3].rows, 6);
  EXPECT_EQ((*plans)[3].columns, 128);
  EXPECT_EQ((*plans)[5].rows, 20);
  EXPECT_EQ((*plans)[6].rows, 7);
}

TEST(LayerPlan, MlxNeedsWholeGroups) {
  const TestModel model({{.name = "a.weight", .shape = {4, 128}}, {.name = "b.weight", .shape = {4, 96}}});
  EXPECT_TRUE(fails(model.plan({.group_size = 128, .format = QuantizeFormat::kMlx}), Errc::kUnsupported,
                    "m: tensor 'b.weight' has 96 columns, not a multiple of group_size 128; use group_size 32, or leave it "
                    "unquantized with sensitive_layer_names"));
  EXPECT_EQ(model.bits_of({.group_size = 32, .format = QuantizeFormat::kMlx}), "a.weight 4, b.weight 4");
  EXPECT_EQ(model.bits_of({.group_size = 128, .format = QuantizeFormat::kMlx, .sensitive_layer_names = {"b.weight"}}),
            "a.weight 4");
  EXPECT_EQ(model.bits_of({.group_size = 128, .format = QuantizeFormat::kMlx, .layer_bit_widths = {{"b", 16}}}), "a.weight 4");

  const TestModel odd({{.name = "c", .shape = {4, 100}}});
  EXPECT_TRUE(fails(odd.plan({.group_size = 64, .format = QuantizeFormat::kMlx}), Errc::kUnsupported,
                    "m: tensor 'c' has 100 columns, not a multiple of group_size 64; leave it unquantized with "
                    "sensitive_layer_names"));
  EXPECT_EQ(odd.bits_of({.group_size = 64}), "c 4");
}

TEST(LayerPlan, ReportsUnmatchedNamesFirst) {
  const TestModel model({{.name = "b.weight", .shape = {4, 100}}});
  EXPECT_TRUE(fails(model.plan({.group_size = 64, .format = QuantizeFormat::kMlx, .sensitive_layer_names = {"c.weight"}}),
                    Errc::kInvalidArgument, "m: sensitive_layer_names 'c.weight' matches no tensor"));
}

TEST(LayerPlan, SensitiveLayersAreQuantizedUnlessSkipped) {
  const std::vector<std::string> sensitive{"lm_head.weight", "model.Embed_tokens.weight", "model.head.weight", "pooler.dense.w",
                                           "q_Norm.weight",  "transformer.ln_f.weight"};
  for (const std::string& name : sensitive) {
    const TestModel model({{.name = "a"}, {.name = name}});
    EXPECT_EQ(model.bits_of({}), fmt::format("a 4, {} 4", name));
    EXPECT_EQ(model.bits_of({.skip_sensitive_layers = true}), "a 4");
  }
  EXPECT_EQ(TestModel({{.name = "heads.weight"}}).bits_of({.skip_sensitive_layers = true}), "heads.weight 4");
}

TEST(LayerPlan, DiffusionModelsLeaveFirstAndLastLayersUnquantized) {
  const TestModel model({{.name = "blocks.0.adaLN_modulation.1.weight"},
                         {.name = "blocks.0.attn.proj_out.weight"},
                         {.name = "blocks.0.attn.qkv.weight"},
                         {.name = "final_layer.linear.weight"},
                         {.name = "proj_out.weight"},
                         {.name = "t_embedder.mlp.0.weight"},
                         {.name = "x_embedder.proj.weight"}});
  EXPECT_EQ(model.bits_of({}),
            "blocks.0.adaLN_modulation.1.weight 8, blocks.0.attn.proj_out.weight 4, blocks.0.attn.qkv.weight 4");
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"*adaLN*", 2}, {"final_layer.linear", 6}}}),
            "blocks.0.adaLN_modulation.1.weight 2, blocks.0.attn.proj_out.weight 4, blocks.0.attn.qkv.weight 4, "
            "final_layer.linear.weight 6");
  for (const std::string root : {"model.diffusion_model.", "transformer.", "unet.", "model."}) {
    const TestModel whole({{.name = root + "blocks.0.proj_out.weight"},
                           {.name = root + "head.head.weight"},
                           {.name = root + "out.2.weight"},
                           {.name = root + "proj_in.weight"},
                           {.name = root + "proj_out.weight"},
                           {.name = root + "single_transformer_blocks.0.norm.linear.weight"},
                           {.name = root + "time_embed.0.weight"}});
    EXPECT_EQ(whole.bits_of({}),
              root + "blocks.0.proj_out.weight 4, " + root + "single_transformer_blocks.0.norm.linear.weight 8");
  }
  // Without a time or a modality that says so, names alone do not make it one.
  EXPECT_EQ(TestModel({{.name = "conv_in.weight"}}).bits_of({.modality = Modality::kText}), "conv_in.weight 4");
  EXPECT_EQ(TestModel({{.name = "conv_in.weight"}, {.name = "x"}}).bits_of({.modality = Modality::kImage}), "x 4");
}

TEST(LayerPlan, NamedLayersAreAlwaysUnquantized) {
  const TestModel model({{.name = "a.weight"}, {.name = "b.0.weight"}, {.name = "b.1.weight"}, {.name = "c"}, {.name = "d.x.y"}});
  EXPECT_EQ(model.bits_of({.sensitive_layer_names = {"a.weight", "b.*"}}), "c 4, d.x.y 4");
  EXPECT_EQ(model.bits_of({.sensitive_layer_names = {"a", "b.?"}}), "c 4, d.x.y 4");
  EXPECT_EQ(model.bits_of({.sensitive_layer_patterns = {R"(b\.[1-9])", "^c$"}}), "a.weight 4, b.0.weight 4, d.x.y 4");
  EXPECT_EQ(model.bits_of({.sensitive_layer_names = {"a"}, .layer_bit_widths = {{"a", 8}, {"*", 2}}}),
            "b.0.weight 2, b.1.weight 2, c 2, d.x.y 2");
}

TEST(LayerPlan, BitsMatchTheNameThenTheLongestGlob) {
  const TestModel model({{.name = "l.0.q.weight"}, {.name = "l.1.q.weight"}, {.name = "l.1.v.weight"}, {.name = "o"}});
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"l.*", 2}, {"l.1.*", 3}, {"l.1.q", 6}, {"*q.weight*", 8}}}),
            "l.0.q.weight 8, l.1.q.weight 6, l.1.v.weight 3, o 4");
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"l.1.q", 6}, {"l.1.q.weight", 5}, {"*", 16}}}), "l.1.q.weight 5");
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"*.q", 8}}}), "l.0.q.weight 8, l.1.q.weight 8, l.1.v.weight 4, o 4");
}

TEST(LayerPlan, ANameMayLookLikeAGlob) {
  const TestModel model({{.name = "a[0]"}, {.name = "a0"}});
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"a[0]", 8}}}), "a[0] 8, a0 8");
}

TEST(LayerPlan, ExplicitBitsOverrideSensitiveNames) {
  const TestModel model({{.name = "a"}, {.name = "lm_head.weight"}});
  EXPECT_EQ(model.bits_of({.skip_sensitive_layers = true, .layer_bit_widths = {{"lm_head", 6}}}), "a 4, lm_head.weight 6");
}

TEST(LayerPlan, UnmatchedPatternsAreErrors) {
  const TestModel model({{.name = "a.weight"}});
  EXPECT_TRUE(fails(model.plan({.sensitive_layer_names = {"a", "b"}}), Errc::kInvalidArgument,
                    "m: sensitive_layer_names 'b' matches no tensor"));
  EXPECT_TRUE(fails(model.plan({.sensitive_layer_names = {"x*"}}), Errc::kInvalidArgument,
                    "m: sensitive_layer_names 'x*' matches no tensor"));
  EXPECT_TRUE(fails(model.plan({.sensitive_layer_patterns = {"a", "^weight"}}), Errc::kInvalidArgument,
                    "m: sensitive_layer_patterns '^weight' matches no tensor"));
  EXPECT_TRUE(fails(model.plan({.layer_bit_widths = {{"a.weigth", 8}}}), Errc::kInvalidArgument,
                    "m: layer_bit_widths 'a.weigth' matches no tensor"));
  EXPECT_TRUE(fails(model.plan({.layer_bit_widths = {{"*.bias", 8}}}), Errc::kInvalidArgument,
                    "m: layer_bit_widths '*.bias' matches no tensor"));
  EXPECT_TRUE(fails(model.plan({.sensitive_layer_patterns = {"("}}), Errc::kInvalidArgument,
                    "m: sensitive_layer_patterns: '(' is not a valid regular expression: missing ): ("));
}

TEST(LayerPlan, BitsForUnquantizableTensorsAreErrors) {
  const TestModel model({{.name = "ids", .shape = {2, 64}, .dtype = DType::kI32}, {.name = "norm.weight", .shape = {64}}});
  EXPECT_TRUE(fails(model.plan({.layer_bit_widths = {{"norm", 8}}}), Errc::kInvalidArgument,
                    "m: layer_bit_widths: tensor 'norm.weight' is BF16 [64], which format parquet does not quantize; leave it "
                    "out or set it to 16"));
  EXPECT_TRUE(fails(
      model.plan({.group_size = 64, .format = QuantizeFormat::kMlx, .layer_bit_widths = {{"ids", 2}}}), Errc::kInvalidArgument,
      "m: layer_bit_widths: tensor 'ids' is I32 [2, 64], which format mlx does not quantize; leave it out or set it to 16"));
  EXPECT_EQ(model.bits_of({.layer_bit_widths = {{"norm", 16}, {"*", 8}}}), "");
}

TEST(LayerPlan, RoutersHaveEightBits) {
  const std::vector<Weight> weights{{.name = "l.0.block_sparse_moe.gate.weight"},
                                    {.name = "l.1.mlp.gate.weight"},
                                    {.name = "l.1.mlp.gate_proj.weight"},
                                    {.name = "l.1.mlp.shared_expert_gate.weight"},
                                    {.name = "l.2.mlp.router.weight"}};
  const TestModel model(weights);
  EXPECT_EQ(model.bits_of({.bit_width = 3}),
            "l.0.block_sparse_moe.gate.weight 8, l.1.mlp.gate.weight 8, l.1.mlp.gate_proj.weight 3, "
            "l.1.mlp.shared_expert_gate.weight 8, l.2.mlp.router.weight 8");
  EXPECT_EQ(model.bits_of({.bit_width = 3, .layer_bit_widths = {{"l.0.*", 2}, {"l.1.mlp.gate", 4}}}),
            "l.0.block_sparse_moe.gate.weight 2, l.1.mlp.gate.weight 4, l.1.mlp.gate_proj.weight 3, "
            "l.1.mlp.shared_expert_gate.weight 8, l.2.mlp.router.weight 8");
  EXPECT_EQ(TestModel({{.name = "l.1.mlp.gate.weight"}}).bits_of({.bit_width = 3}), "l.1.mlp.gate.weight 3");
  EXPECT_EQ(TestModel({{.name = "l.1.mlp.experts.3.up_proj.weight"}, {.name = "l.1.mlp.gate.weight"}}).bits_of({.bit_width = 3}),
            "l.1.mlp.experts.3.up_proj.weight 3, l.1.mlp.gate.weight 8");
}

// Which of 28 layers mlx-lm gives more bits.
TEST(LayerPlan, MixedRecipesSpendMoreWhereItHelps) {
  std::vector<Weight> weights{{.name = "lm_head.weight"}, {.name = "model.embed_tokens.weight"}};
  for (unsigned i = 0; i < 28; ++i) {
    for (const char* const part : {"mlp.down_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
      weights.push_back({.name = fmt::format("model.layers.{}.{}.weight", i, part)});
    }
  }
  const TestModel model(weights);
  const std::vector<unsigned> high{0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27};
  std::map<std::string, unsigned> expected{{"lm_head.weight", 6}, {"model.embed_tokens.weight", 2}};
  for (const Weight& weight : weights) expected.emplace(weight.name, 2);
  for (const unsigned i : high) {
    expected[fmt::format("model.layers.{}.mlp.down_proj.weight", i)] = 6;
    expected[fmt::format("model.layers.{}.self_attn.v_proj.weight", i)] = 6;
  }
  std::vector<std::string> shown;
  for (const auto& [name, bits] : expected) shown.push_back(fmt::format("{} {}", name, bits));
  std::ranges::sort(weights, {}, &Weight::name);
  EXPECT_EQ(TestModel(weights).bits_of({.bit_width = 8, .recipe = Recipe::kMixed2And6}),
            fmt::format("{}", fmt::join(shown, ", ")));
}

TEST(LayerPlan, EveryRecipeHasItsBits) {
  const TestModel model({{.name = "l.0.down_proj"}, {.name = "lm_head"}});
  EXPECT_EQ(model.bits_of({.recipe = Recipe::kMixed2And6}), "l.0.down_proj 6, lm_head 6");
  const TestModel two({{.name = "h.0.up"}, {.name = "h.7.down_proj"}});
  EXPECT_EQ(two.bits_of({.recipe = Recipe::kMixed2And6}), "h.0.up 2, h.7.down_proj 6");
  EXPECT_EQ(two.bits_of({.recipe = Recipe::kMixed3And4}), "h.0.up 3, h.7.down_proj 4");
  EXPECT_EQ(two.bits_of({.recipe = Recipe::kMixed3And6}), "h.0.up 3, h.7.down_proj 6");
  EXPECT_EQ(two.bits_of({.recipe = Recipe::kMixed4And6}), "h.0.up 4, h.7.down_proj 6");
  EXPECT_EQ(two.bits_of({.recipe = Recipe::kMixed4And6, .layer_bit_widths = {{"h.7.down_proj", 3}}}),
            "h.0.up 4, h.7.down_proj 3");
}

// Expert numbers are no layer numbers, and a vision tower counts for itself.
TEST(LayerPlan, RecipesCountTheLayersOfEachStack) {
  const TestModel model({{.name = "model.layers.15.mlp.experts.0.down_proj.weight"},
                         {.name = "model.layers.3.mlp.experts.15.down_proj.weight"},
                         {.name = "patch.down_proj.weight"},
                         {.name = "vision.blocks.3.down_proj.weight"},
                         {.name = "vision.blocks.4294967296.down_proj.weight"}});
  EXPECT_EQ(model.bits_of({.recipe = Recipe::kMixed3And6}),
            "model.layers.15.mlp.experts.0.down_proj.weight 6, model.layers.3.mlp.experts.15.down_proj.weight 3, "
            "patch.down_proj.weight 3, vision.blocks.3.down_proj.weight 6, vision.blocks.4294967296.down_proj.weight 3");
}

TEST(LayerPlan, RecipesNeedDownProj) {
  EXPECT_TRUE(fails(TestModel({{.name = "h.0.w"}}).plan({.recipe = Recipe::kMixed2And6}), Errc::kUnsupported,
                    "m: recipe mixed_2_6 needs layers named down_proj, and the model has none; use bit_width instead"));
}

TEST(LayerPlan, AnEmptyModelHasAnEmptyPlan) {
  const std::string bytes = test::safetensors("{}");
  const auto model = Model::from_bytes(test::as_bytes(bytes));
  ASSERT_TRUE(model) << model.error().message;
  const auto plans = Plan::make(*model, {});
  ASSERT_TRUE(plans) << plans.error().message;
  EXPECT_THAT(plans->layers(), IsEmpty());
}

TEST(Plan, FloatTypesLeaveRoutersToIntegers) {
  const TestModel model({{.name = "h.0.mlp.experts.0.up.weight"},
                         {.name = "h.0.mlp.gate.weight"},
                         {.name = "h.1.mlp.gate.weight", .shape = {8, 32}}});
  for (const QuantizeType type : {QuantizeType::kMxfp4, QuantizeType::kMxfp8, QuantizeType::kNvfp4}) {
    const auto plan = model.plan({.type = type, .format = QuantizeFormat::kMlx});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ((*plan)[0].type, type);
    EXPECT_EQ((*plan)[0].bits, type == QuantizeType::kMxfp8 ? 8 : 4);
    EXPECT_EQ((*plan)[0].group_size, type == QuantizeType::kNvfp4 ? 16 : 32);
    EXPECT_EQ((*plan)[1].type, QuantizeType::kInt);
    EXPECT_EQ((*plan)[1].bits, 8);
    EXPECT_EQ((*plan)[1].group_size, 64);
    EXPECT_EQ((*plan)[2].group_size, 32);
  }
}

}  // namespace
}  // namespace ballast
