#include <ballast/verify.h>

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::fails;
using test::raw;
using test::safetensors;
using test::safetensors_of;
using test::TempDir;
using test::WithoutPrivilege;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> told(const VerifyReport& report) {
  std::vector<std::string> found;
  for (const Defect& defect : report.defects) found.push_back(defect.check + ": " + defect.message);
  return found;
}

VerifyReport verified(const std::string& path, const VerifyOptions& options = {}) {
  auto report = verify_model(path, options);
  EXPECT_TRUE(report) << report.error().message;
  return report ? std::move(*report) : VerifyReport{};
}

TEST(Verify, SoundFileHasNoDefects) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors_of({"a", "b"}));
  const VerifyReport report = verified(path);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.checks, ElementsAre("header"));
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_EQ(report.tensors, 2);
  EXPECT_EQ(report.bytes, std::filesystem::file_size(path));
  ASSERT_EQ(report.files.size(), 1);
  EXPECT_EQ(report.files[0].path, path);
  EXPECT_EQ(report.files[0].size, report.bytes);
  EXPECT_EQ(report.files[0].tensors, 2);
  EXPECT_EQ(report.files[0].sha256, "");
}

TEST(Verify, BrokenHeaderIsADefect) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", "tiny");
  const VerifyReport report = verified(path);
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(told(report),
              ElementsAre("header: " + path + ": file of 4 bytes is too small for a SafeTensors header (at least 8 bytes)"));
  ASSERT_EQ(report.files.size(), 1);
  EXPECT_EQ(report.files[0].size, 4);
}

TEST(Verify, SpecialFilesAndUnreadableConfigsAreErrors) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("model.safetensors"));
  EXPECT_TRUE(fails(verify_model(dir.path()), Errc::kIo, dir.path("model.safetensors") + ": not a regular file"));
  const TempDir linked;
  linked.write("model.safetensors", safetensors_of({"a"}));
  std::filesystem::create_symlink("nowhere", linked.path("config.json"));
  EXPECT_TRUE(fails(verify_model(linked.path()), Errc::kNotFound,
                    linked.path("config.json") + ": cannot open: No such file or directory"));
}

TEST(Verify, ReportsSkippedChecks) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  dir.write("config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(verified(dir.path()).skipped, ElementsAre("architecture: unknown for model_type 'bert'"));
}

TEST(Verify, NamesWhatIsBesideTheModel) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  dir.write("1_Pooling/config.json", "{}");
  dir.write("2_Dense/model.safetensors", safetensors_of({"b"}));
  dir.write(".cache/x.bin", "");
  dir.write("onnx/model.onnx", "onnx");
  dir.write("pytorch_model.bin", std::string("PK\3\4 data PK\5\6") + std::string(18, '\0'));
  dir.write("big.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
  const VerifyReport report = verified(dir.path());
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.checks, ElementsAre("header", "other weights"));
  EXPECT_THAT(report.skipped,
              ElementsAre("weights of other models, except their headers: 2_Dense/model.safetensors",
                          "weights of other formats, except whether they are complete: pytorch_model.bin",
                          "weights of other formats: onnx/model.onnx", "Git LFS pointers, which are not downloaded: big.gguf",
                          "other files in folders: 1_Pooling"));
}

TEST(Verify, TruncatedWeightsBesideTheModelAreDefects) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  const std::string whole = safetensors_of({"b"});
  const std::string part = dir.write("2_Dense/model.safetensors", whole.substr(0, whole.size() - 1));
  const std::string zip = dir.write("pytorch_model.bin", "PK\3\4 data");
  const std::string empty = dir.write("x.pt", "");
  EXPECT_THAT(told(verified(dir.path())),
              ElementsAre(testing::StartsWith("other weights: " + part + ": file is truncated: "),
                          "other weights: " + zip + ": ZIP archive of 9 bytes without an end: it is truncated; download it again",
                          "other weights: " + empty + ": file of 0 bytes; download it again"));
}

TEST(Verify, NothingToCheckIsAnError) {
  const TempDir dir;
  EXPECT_TRUE(fails(verify_model(dir.path("x")), Errc::kNotFound, dir.path("x") + ": cannot open: No such file or directory"));
  EXPECT_TRUE(fails(verify_model(dir.path()), Errc::kNotFound,
                    dir.path() +
                        ": no weights found; expected model.safetensors.index.json, model.safetensors, weights.safetensors or "
                        "weights.mlx"));
}

TEST(Verify, UnreadableFileIsAnError) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors_of({"a"}));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const WithoutPrivilege unprivileged;
  if (!unprivileged.effective()) GTEST_SKIP() << "root may read every file, and may not become another user here";
  EXPECT_TRUE(fails(verify_model(path), Errc::kIo, path + ": cannot open: Permission denied"));
}

TEST(Verify, LayoutThatCannotBeOpenedIsADefect) {
  const TempDir dir;
  dir.write("m-00001-of-00002.safetensors", safetensors_of({"a"}));
  const VerifyReport report = verified(dir.path());
  EXPECT_THAT(report.checks, ElementsAre("layout"));
  EXPECT_THAT(told(report), ElementsAre("layout: " + dir.path() +
                                        ": shard 'm-00002-of-00002.safetensors' is missing (1 of 2 found); download it"));
}

TEST(Verify, ShardsWithoutAnIndexAreCompared) {
  const TempDir dir;
  dir.write("m-00001-of-00002.safetensors", safetensors_of({"a"}));
  dir.write("m-00002-of-00002.safetensors", safetensors_of({"a"}));
  const VerifyReport report = verified(dir.path());
  EXPECT_THAT(report.checks, ElementsAre("header", "shards"));
  EXPECT_THAT(told(report), ElementsAre("shards: " + dir.path("m-00002-of-00002.safetensors") +
                                        ": tensor 'a' is also in m-00001-of-00002.safetensors"));
}

TEST(Verify, ContinuesAfterTheFirstDefect) {
  const TempDir dir;
  const std::string index = dir.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":2},"weight_map":{"a":"1.safetensors","ghost":"1.safetensors","b":"2.safetensors","c":"3.safetensors"}})");
  dir.write("1.safetensors", safetensors_of({"a", "extra"}));
  dir.write("2.safetensors", safetensors("[]"));
  const std::string config = dir.write("config.json", R"({"hidden_size": "x"})");
  const VerifyReport report = verified(dir.path());
  EXPECT_THAT(report.checks, ElementsAre("header", "index", "config"));
  EXPECT_THAT(
      told(report),
      ElementsAre("header: " + dir.path("2.safetensors") + ": invalid JSON in header: expected '{' at byte 8 of 10",
                  "index: " + index + ": shard '3.safetensors' is missing; download it",
                  "index: " + index + ": tensor 'ghost' should be in 1.safetensors, but no shard of the index contains it",
                  "config: " + config + ": hidden_size is 'x', expected a whole number"));
  EXPECT_THAT(report.warnings, ElementsAre(index + ": tensor 'extra' of 1.safetensors is not in the index"));
}

// Codes of bitsandbytes may be stored as BF16.
TEST(Verify, CodesOfSeveralValuesAreNotNaN) {
  const std::string state = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [2, 2]})";
  const std::string nan = raw<std::uint16_t>({0x7FFF});
  std::vector<test::TensorText> tensors{{"a.weight", DType::kBF16, {1, 1}, nan},
                                        {"a.weight.absmax", DType::kF32, {1}},
                                        {"a.weight.quant_map", DType::kF32, {16}},
                                        {"a.weight.quant_state.bitsandbytes__nf4", DType::kU8, {state.size()}, state}};
  const TempDir dir;
  const VerifyReport report = verified(dir.write("x.safetensors", test::safetensors(tensors)), {.values = true});
  ASSERT_THAT(told(report), testing::SizeIs(1));
  EXPECT_THAT(told(report).front(), testing::HasSubstr("tensor 'a.weight.quant_map': value 0 is 0, expected -1 for nf4"));
  tensors.pop_back();
  tensors.resize(1, tensors.front());
  EXPECT_THAT(told(verified(dir.write("x.safetensors", test::safetensors(tensors)), {.values = true})).front(),
              testing::HasSubstr("1 of 1 values are NaN"));
}

TEST(Verify, WarningsOfTheLayoutAreKept) {
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of({"a"}));
  dir.write("weights.safetensors", safetensors_of({"a"}));
  EXPECT_THAT(verified(dir.path()).warnings,
              ElementsAre(dir.path("weights.safetensors") + " is ignored because model.safetensors is used"));
}

TEST(Verify, ArchitectureIsCompared) {
  const TempDir dir;
  dir.write("config.json", R"({"model_type": "llama", "vocab_size": 2, "hidden_size": 2, "intermediate_size": 2,
    "num_hidden_layers": 1, "num_attention_heads": 1, "tie_word_embeddings": true})");
  dir.write("model.safetensors", safetensors(R"({"model.norm.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                             R"("x\n":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                             "ab"));
  const VerifyReport report = verified(dir.path());
  EXPECT_THAT(report.checks, ElementsAre("header", "config", "architecture"));
  EXPECT_THAT(told(report), ElementsAre("architecture: tensor 'model.embed_tokens.weight' is missing",
                                        "architecture: tensor 'model.layers.0.input_layernorm.weight' is missing",
                                        "architecture: tensor 'model.layers.0.mlp.down_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.mlp.gate_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.mlp.up_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.post_attention_layernorm.weight' is missing",
                                        "architecture: tensor 'model.layers.0.self_attn.k_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.self_attn.o_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.self_attn.q_proj.weight' is missing",
                                        "architecture: tensor 'model.layers.0.self_attn.v_proj.weight' is missing",
                                        "architecture: tensor 'x\\n' does not belong to llama",
                                        "architecture: tensor 'model.norm.weight' has shape [1], the config implies [2]"));
}

TEST(Verify, ConfigThatLacksASizeIsADefect) {
  const TempDir dir;
  const std::string config = dir.write("config.json", R"({"model_type": "llama"})");
  dir.write("model.safetensors", safetensors_of({"a"}));
  EXPECT_THAT(told(verified(dir.path())), ElementsAre("config: " + config + ": config has no vocab_size"));
}

// 'w' holds a NaN, 'zero' nothing but zeroes, 'ok' neither.
std::string suspect_values() {
  return safetensors(
      R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"zero":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
      R"("ok":{"dtype":"F32","shape":[2,1],"data_offsets":[16,24]},"six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[24,27]}})",
      raw({1.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F, 0.0F, 1.0F, 2.0F}) + "abc");
}

TEST(Verify, ValuesAreCheckedOnRequest) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", suspect_values());
  EXPECT_TRUE(verified(path).ok());
  const VerifyReport report = verified(path, {.values = true});
  EXPECT_THAT(report.checks, ElementsAre("header", "values"));
  EXPECT_THAT(told(report), ElementsAre("values: " + path + ": tensor 'w': 1 of 2 values are NaN",
                                        "values: " + path + ": tensor 'zero': all 2 values are 0"));
  const ValueLimits lenient{.allow_nan = true, .allow_constant = true, .max_zero_share = 1, .min_l2_norm = 0};
  EXPECT_TRUE(verified(path, {.values = true, .limits = lenient}).ok());
}

TEST(Verify, FilesAreHashedOnRequest) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  const VerifyReport report = verified(path, {.sha256 = true});
  EXPECT_THAT(report.checks, ElementsAre("header", "sha256"));
  EXPECT_EQ(report.files[0].sha256, "9bbcbf73561f6bc5d0a17ea6a2081feed2d1304e87602d8c502d9a5c4bd85576");
}

TEST(Verify, ProgressRunsOverValuesAndHashes) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", suspect_values());
  constexpr std::uint64_t kData = 27;
  const std::uint64_t size = std::filesystem::file_size(path);
  std::uint64_t last = 0;
  std::uint64_t expected = 0;
  const Progress watch = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
    EXPECT_EQ(total, expected);
    EXPECT_GE(done, last);
    last = done;
    return true;
  };
  expected = kData;
  verified(path, {.values = true, .work = {.progress = watch}});
  EXPECT_EQ(last, expected);
  last = 0;
  expected = kData + size;
  verified(path, {.values = true, .sha256 = true, .work = {.progress = watch}});
  EXPECT_EQ(last, expected);
}

TEST(Verify, CanBeCancelled) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", suspect_values());
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  EXPECT_TRUE(fails(verify_model(path, {.values = true, .work = {.progress = stop}}), Errc::kCancelled, "cancelled"));
  EXPECT_TRUE(fails(verify_model(path, {.sha256 = true, .work = {.progress = stop}}), Errc::kCancelled, path + ": cancelled"));
}

}  // namespace
}  // namespace ballast
