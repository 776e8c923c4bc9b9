#include "jobs/convert/selection.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;

std::string renamed(const std::string& from, const std::string& to, std::string_view name) {
  return apply_rename({.from = from, .to = to}, name).value_or("-");
}

TEST(Rename, WithoutStarsMeansOneName) {
  EXPECT_EQ(renamed("a.b", "c", "a.b"), "c");
  EXPECT_EQ(renamed("a.b", "c", "a.bb"), "-");
  EXPECT_EQ(renamed("a.b", "c", "xa.b"), "-");
}

TEST(Rename, StarsCarryOver) {
  EXPECT_EQ(renamed("model.*", "decoder.*", "model.layers.0.w"), "decoder.layers.0.w");
  EXPECT_EQ(renamed("*.gamma", "*.weight", "norm.gamma"), "norm.weight");
  EXPECT_EQ(renamed("h.*.attn.*", "layers.*.self.*", "h.11.attn.q.attn.w"), "layers.11.self.q.attn.w");
  EXPECT_EQ(renamed("*", "x.*", ""), "x.");
  EXPECT_EQ(renamed("*a*", "*", "banana"), "b");
  EXPECT_EQ(renamed("a*a", "*", "a"), "-");
  EXPECT_EQ(renamed("a**", "*-*", "abc"), "-bc");
}

class Selecting : public testing::Test {
 protected:
  Selecting() {
    const std::string header =
        R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"i":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
        R"("norm.h":{"dtype":"F16","shape":[1],"data_offsets":[8,10]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[10,11]},)"
        R"("s":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[11,14]}})";
    file_ = test::safetensors(header, std::string(14, '\0'));
    model_.emplace(*Model::from_bytes(test::as_bytes(file_), "m"));
  }
  std::string select(const ConvertOptions& options) const {
    const auto selection = select_tensors(*model_, options);
    if (!selection) return selection.error().message;
    std::string text;
    for (const TensorSpec& tensor : selection->targets) text += tensor.name + ":" + std::string(name(tensor.dtype)) + " ";
    for (const std::string& warning : selection->warnings) text += "(" + warning + ")";
    return text;
  }

  std::string file_;
  std::optional<Model> model_;
};

TEST_F(Selecting, TakesEverythingAsItIs) { EXPECT_EQ(select({}), "f:F32 i:I32 norm.h:F16 b:BOOL s:F6_E2M3 "); }

TEST_F(Selecting, ADTypeIsForItsKind) {
  EXPECT_EQ(select({.dtype = DType::kBF16}),
            "f:BF16 i:I32 norm.h:BF16 b:BOOL s:F6_E2M3 (1 tensor of F6 keeps its dtype, because F6 has no standard packing)");
  EXPECT_EQ(select({.dtype = DType::kU8}), "f:F32 i:U8 norm.h:F16 b:BOOL s:F6_E2M3 ");
}

TEST_F(Selecting, PatternsNameAnyTensorAndTheLastWins) {
  EXPECT_EQ(select({.dtype = DType::kBF16,
                    .dtype_rules = {{.pattern = "[fib]", .dtype = DType::kF64}, {.pattern = "i", .dtype = DType::kU8}},
                    .exclude = {"s"}}),
            "f:F64 i:U8 norm.h:BF16 b:F64 ");
  EXPECT_EQ(select({.dtype = DType::kI8, .include = {"f"}}),
            "f:F32 (dtype I8: there are no integer tensors to convert; name others by a pattern, such as '*=I8')");
  EXPECT_EQ(select({.dtype = DType::kF6E2M3}),
            "dtype F6_E2M3: other dtypes cannot be converted to it; leave the option out to copy tensors");
  EXPECT_EQ(select({.dtype_rules = {{.pattern = "s", .dtype = DType::kF32}}}),
            "m: tensor 's': F6_E2M3 cannot be converted to F32");
}

TEST_F(Selecting, FrequenciesAndScalesKeepTheirDTypeUnlessNamed) {
  const std::string file = test::safetensors(R"({"a.inv_freq":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                             R"("gate.e_score_correction_bias":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                             R"("w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                             std::string(12, '\0'));
  const auto model = Model::from_bytes(test::as_bytes(file), "m");
  ASSERT_TRUE(model) << model.error().message;
  const auto plain = select_tensors(*model, {.dtype = DType::kBF16});
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->targets[0].dtype, DType::kF32);
  EXPECT_EQ(plain->targets[1].dtype, DType::kF32);
  EXPECT_EQ(plain->targets[2].dtype, DType::kBF16);
  ASSERT_EQ(plain->notes.size(), 1U);
  EXPECT_EQ(plain->notes[0],
            "'a.inv_freq' and 1 more are not converted: rotary frequencies, router corrections and scales keep "
            "their dtype unless a pattern names them");
  EXPECT_TRUE(plain->warnings.empty());
  const auto named = select_tensors(*model, {.dtype = DType::kBF16, .dtype_rules = {{.pattern = "*", .dtype = DType::kF16}}});
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->targets[0].dtype, DType::kF16);
  EXPECT_TRUE(named->notes.empty());
}

TEST_F(Selecting, IncludesExcludesAndRenames) {
  EXPECT_EQ(select({.include = {"*h", "f", "i"}, .exclude = {"i"}, .renames = {{.from = "norm.*", .to = "n.*"}}}),
            "f:F32 n.h:F16 ");
  EXPECT_EQ(select({.exclude = {"*"}}), "(no tensor is left to write: all are excluded)");
}

TEST_F(Selecting, RenamesThatGiveTwoTensorsOneNameAreErrors) {
  EXPECT_TRUE(fails(select_tensors(*model_, {.renames = {{.from = "*", .to = "x"}}}), Errc::kInvalidArgument,
                    "m: rename: tensors 'f' and 'i' would both be named 'x'; use a '*' in the new name for each in the old"));
  EXPECT_EQ(select({.renames = {{.from = "f", .to = "i"}}}),
            "m: rename: tensors 'f' and 'i' would both be named 'i'; use a '*' in the new name for each in the old");
}

TEST_F(Selecting, UnmatchedPatternsAreErrors) {
  EXPECT_EQ(select({.include = {"x*"}}), "m: include 'x*' matches no tensor");
  EXPECT_EQ(select({.exclude = {"x"}}), "m: exclude 'x' matches no tensor");
  EXPECT_EQ(select({.dtype_rules = {{.pattern = "x", .dtype = DType::kF32}}}), "m: dtype 'x' matches no tensor");
  EXPECT_EQ(select({.renames = {{.from = "x", .to = "y"}}}), "m: rename 'x' matches no tensor");
  EXPECT_TRUE(fails(select_tensors(*model_, {.renames = {{.from = "f", .to = "*"}}}), Errc::kInvalidArgument,
                    "rename: the new name '*' has more stars (1) than the old name 'f' (0)"));
}

}  // namespace
}  // namespace ballast
