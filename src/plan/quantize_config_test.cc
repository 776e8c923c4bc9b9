#include <ballast/quantize_config.h>

#include <cstdlib>
#include <limits>
#include <type_traits>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using List = std::vector<std::string>;
using Pairs = std::map<std::string, std::string>;

Result<QuantizeConfig> made(std::vector<ConfigFields> sources) { return make_quantize_config(sources); }

// What is said when this field alone is given.
std::string complaint(const std::string& field, ConfigValue value) {
  const auto config = made({{{field, std::move(value)}}});
  if (config) return "no complaint";
  EXPECT_EQ(config.error().code, Errc::kInvalidArgument);
  return config.error().message;
}

// A config in which no setting has its default value, but for those that a test sets itself.
QuantizeConfig with_every_setting() {
  QuantizeConfig config = QuantizeConfig::cloud();
  config.bit_width = 3;
  config.group_size = 32;
  config.method = QuantizeMethod::kHqq;
  config.format = QuantizeFormat::kMlx;
  config.min_accuracy = 0.5;
  config.fail_fast = true;
  config.skip_sensitive_layers = true;
  config.sensitive_layer_names = {"a", "b.*"};
  config.num_threads = 7;
  config.max_memory_limit = std::uint64_t{100} << 20;
  config.target_model_size = 12'500'000;
  config.enable_time_aware = true;
  config.enable_spatial = false;
  config.num_time_groups = 4;
  config.calibration_samples = 9;
  return config;
}

TEST(QuantizeConfig, StartsAsTheProfileLocal) {
  const auto config = made({});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, QuantizeConfig{});
  EXPECT_EQ(*config, QuantizeConfig::local());
}

TEST(QuantizeConfig, ProfilesHaveTheirValues) {
  const QuantizeConfig edge = QuantizeConfig::edge();
  EXPECT_EQ(edge.deployment_profile, Profile::kEdge);
  EXPECT_EQ(edge.bit_width, 2);
  EXPECT_EQ(edge.num_time_groups, 5);
  EXPECT_EQ(edge.group_size, 256);
  EXPECT_EQ(edge.min_accuracy, 0.65);
  EXPECT_EQ(edge.calibration_samples, 32);
  EXPECT_EQ(edge.enable_spatial, false);

  const QuantizeConfig local = QuantizeConfig::local();
  EXPECT_EQ(local.bit_width, 4);
  EXPECT_EQ(local.num_time_groups, 10);
  EXPECT_EQ(local.group_size, 128);
  EXPECT_EQ(local.min_accuracy, 0.85);
  EXPECT_EQ(local.calibration_samples, 128);
  EXPECT_EQ(local.enable_spatial, std::nullopt);

  const QuantizeConfig cloud = QuantizeConfig::cloud();
  EXPECT_EQ(cloud.deployment_profile, Profile::kCloud);
  EXPECT_EQ(cloud.bit_width, 8);
  EXPECT_EQ(cloud.num_time_groups, 20);
  EXPECT_EQ(cloud.group_size, 64);
  EXPECT_EQ(cloud.min_accuracy, 0.95);
  EXPECT_EQ(cloud.calibration_samples, 512);
  EXPECT_EQ(cloud.enable_spatial, std::nullopt);

  for (const Profile profile : {Profile::kEdge, Profile::kLocal, Profile::kCloud}) {
    EXPECT_TRUE(validate(QuantizeConfig::for_profile(profile)));
    EXPECT_EQ(made({{{"deployment_profile", std::string(name(profile))}}}), QuantizeConfig::for_profile(profile));
  }
}

// It would change no other field.
static_assert(!std::is_assignable_v<decltype(QuantizeConfig::deployment_profile)&, Profile>);

TEST(QuantizeConfig, EveryFieldCanBeSet) {
  const auto config = made({{
      {"deployment_profile", "cloud"},
      {"bit_width", "3"},
      {"group_size", "32"},
      {"type", "int"},
      {"method", "hqq"},
      {"format", "mlx"},
      {"recipe", "mixed_3_6"},
      {"modality", "audio"},
      {"min_accuracy", "0.5"},
      {"fail_fast", "true"},
      {"skip_sensitive_layers", "Yes"},
      {"sensitive_layer_names", List{"a", "b.*"}},
      {"sensitive_layer_patterns", List{"^x{1,3}$"}},
      {"layer_bit_widths", Pairs{{"lm_head", "8"}, {"embed*", "16"}}},
      {"num_threads", "7"},
      {"max_memory_limit_mb", "100"},
      {"num_time_groups", "4"},
      {"enable_time_aware", "on"},
      {"enable_spatial", "0"},
      {"calibration_samples", "9"},
      {"target_model_size_mb", "12.5"},
  }});
  ASSERT_TRUE(config) << config.error().message;
  QuantizeConfig expected = with_every_setting();
  expected.recipe = Recipe::kMixed3And6;
  expected.modality = Modality::kAudio;
  expected.sensitive_layer_patterns = {"^x{1,3}$"};
  expected.layer_bit_widths = {{"lm_head", 8}, {"embed*", 16}};
  EXPECT_EQ(*config, expected);
}

TEST(QuantizeConfig, EveryWordIsRead) {
  for (const Recipe recipe :
       {Recipe::kUniform, Recipe::kMixed2And6, Recipe::kMixed3And4, Recipe::kMixed3And6, Recipe::kMixed4And6}) {
    EXPECT_EQ(made({{{"recipe", std::string(name(recipe))}}}).value().recipe, recipe);
  }
  EXPECT_EQ(name(Recipe::kMixed3And4), "mixed_3_4");
  for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kSearch, QuantizeMethod::kHqq}) {
    EXPECT_EQ(made({{{"method", std::string(name(method))}}}).value().method, method);
  }
  for (const Modality modality : {Modality::kText, Modality::kCode, Modality::kImage, Modality::kAudio}) {
    EXPECT_EQ(made({{{"modality", std::string(name(modality))}}}).value().modality, modality);
  }
}

TEST(QuantizeConfig, TheLastSourceWins) {
  const auto config = made({{{"bit_width", "3"}, {"group_size", "32"}, {"layer_bit_widths", Pairs{{"a", "2"}}}},
                            {{"bit_width", "5"}, {"layer_bit_widths", Pairs{{"b", "8"}}}},
                            {{"min_accuracy", "1"}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bit_width, 5);
  EXPECT_EQ(config->group_size, 32);
  EXPECT_EQ(config->min_accuracy, 1);
  EXPECT_THAT(config->layer_bit_widths, ElementsAre(Pair("b", 8)));
}

TEST(QuantizeConfig, ProfileAppliesBeforeTheFieldsOfAllSources) {
  const auto config = made({{{"bit_width", "3"}, {"deployment_profile", "cloud"}}, {{"deployment_profile", "edge"}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->deployment_profile, Profile::kEdge);
  EXPECT_EQ(config->bit_width, 3);
  EXPECT_EQ(config->num_time_groups, 5);
}

TEST(QuantizeConfig, EmptyValueResetsAnOptional) {
  const auto config =
      made({{{"modality", "text"}, {"target_model_size_mb", "5"}}, {{"modality", ""}, {"target_model_size_mb", ""}}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, QuantizeConfig{});
}

TEST(QuantizeConfig, ErrorsListAllowedValues) {
  EXPECT_EQ(complaint("deployment_profile", "server"), "deployment_profile is 'server', it must be edge, local or cloud");
  EXPECT_EQ(complaint("bit_width", "7"), "bit_width is 7, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("group_size", "100"), "group_size is 100, it must be 32, 64, 128 or 256");
  EXPECT_EQ(complaint("method", "gptq"), "method is 'gptq', it must be auto, rtn, search or hqq");
  EXPECT_EQ(complaint("format", "gguf"), "format is 'gguf', it must be parquet, mlx, compressed-tensors or hf-fp8");
  EXPECT_EQ(complaint("recipe", "mixed_2_4"),
            "recipe is 'mixed_2_4', it must be uniform, mixed_2_6, mixed_3_4, mixed_3_6 or mixed_4_6");
  EXPECT_EQ(complaint("modality", "unknown"), "modality is 'unknown', it must be text, code, image or audio");
  EXPECT_EQ(complaint("min_accuracy", "1.5"), "min_accuracy is 1.5, it must be from 0 to 1");
  EXPECT_EQ(complaint("fail_fast", "maybe"), "fail_fast is 'maybe', it must be true or false");
  EXPECT_EQ(complaint("skip_sensitive_layers", ""), "skip_sensitive_layers is '', it must be true or false");
  EXPECT_EQ(complaint("num_threads", "1025"), "num_threads is 1025, it must be from 0 to 1024");
  EXPECT_EQ(complaint("max_memory_limit_mb", "15"), "max_memory_limit_mb is 15, it must be from 16 to 1048576");
  EXPECT_EQ(complaint("num_time_groups", "0"), "num_time_groups is 0, it must be from 1 to 1000");
  EXPECT_EQ(complaint("enable_time_aware", "2"), "enable_time_aware is '2', it must be true or false");
  EXPECT_EQ(complaint("enable_spatial", "tru"), "enable_spatial is 'tru', it must be true or false");
  EXPECT_EQ(complaint("calibration_samples", "0"), "calibration_samples is 0, it must be from 1 to 1000000");
  EXPECT_EQ(complaint("target_model_size_mb", "0"), "target_model_size_mb is 0, it must be a number above 0");
}

TEST(QuantizeConfig, SizesAreBytesButMegabytesInText) {
  for (const auto& [text, bytes] : std::map<std::string, std::uint64_t>{{"0.35", 350'000},
                                                                        {"0.29", 290'000},
                                                                        {"12.5", 12'500'000},
                                                                        {"400", 400'000'000},
                                                                        {"1e-06", 1},
                                                                        {"999999999.999999", 999'999'999'999'999}}) {
    const auto config = made({{{"target_model_size_mb", text}}});
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->target_model_size, bytes);
    EXPECT_THAT(to_yaml(*config), HasSubstr(fmt::format("\ntarget_model_size_mb: {}\n", text)));
  }
  EXPECT_EQ(made({{{"max_memory_limit_mb", "16"}}}).value().max_memory_limit, std::uint64_t{16} << 20);
  EXPECT_EQ(made({{{"max_memory_limit_mb", "1048576"}}}).value().max_memory_limit, std::uint64_t{1} << 40);
  EXPECT_THAT(to_yaml({.max_memory_limit = 100'000'000}), HasSubstr("\nmax_memory_limit_mb: 95\n"));
  EXPECT_EQ(complaint("max_memory_limit_mb", "384.5"), "max_memory_limit_mb is '384.5', it must be from 16 to 1048576");
  EXPECT_EQ(complaint("target_model_size_mb", "1e-7"), "target_model_size_mb is 1e-07, it must be at least 0.000001");
  EXPECT_EQ(complaint("target_model_size_mb", "1e10"), "target_model_size_mb is 10000000000, it must be at most 1000000000");
  EXPECT_EQ(complaint("target_model_size_mb", "5MB"), "target_model_size_mb is '5MB', it must be a number above 0");
  EXPECT_EQ(complaint("target_model_size_mb", List{"5"}), "target_model_size_mb is a list, it must be a number above 0");
}

TEST(QuantizeConfig, RejectsTextAfterNumbers) {
  for (const char* const text :
       {"-4", "4x", "4 ", " 4", "+4", "0x4", "4.0", "4e0", "four", "", "4294967300", "99999999999999999999"}) {
    EXPECT_EQ(complaint("bit_width", text), fmt::format("bit_width is '{}', it must be 2, 3, 4, 5, 6 or 8", text));
  }
  for (const char* const text : {"0.5x", "0,5", "1e999", ".", "0x1p-1"}) {
    EXPECT_EQ(complaint("min_accuracy", text), fmt::format("min_accuracy is '{}', it must be from 0 to 1", text));
  }
  EXPECT_EQ(complaint("min_accuracy", "nan"), "min_accuracy is nan, it must be from 0 to 1");
  EXPECT_EQ(complaint("min_accuracy", ".nan"), "min_accuracy is '.nan', it must be from 0 to 1");
  EXPECT_EQ(complaint("min_accuracy", "-0.1"), "min_accuracy is -0.1, it must be from 0 to 1");
  EXPECT_EQ(complaint("target_model_size_mb", "inf"), "target_model_size_mb is inf, it must be a number above 0");
  EXPECT_EQ(complaint("target_model_size_mb", "nan"), "target_model_size_mb is nan, it must be a number above 0");
  for (const char* const text : {"0", "1", "1e-3", ".5", "1.0"}) EXPECT_TRUE(made({{{"min_accuracy", text}}})) << text;
}

TEST(QuantizeConfig, ValuesOfTheWrongKindAreNamed) {
  EXPECT_EQ(complaint("bit_width", List{"4"}), "bit_width is a list, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("min_accuracy", Pairs{}), "min_accuracy is a mapping, it must be from 0 to 1");
  EXPECT_EQ(complaint("sensitive_layer_names", "a"), "sensitive_layer_names is 'a', it must be a list");
  EXPECT_EQ(complaint("sensitive_layer_patterns", Pairs{}), "sensitive_layer_patterns is a mapping, it must be a list");
  EXPECT_EQ(complaint("layer_bit_widths", List{"a"}), "layer_bit_widths is a list, it must be a mapping from names to bits");
}

TEST(QuantizeConfig, NamesAndPatternsAreChecked) {
  EXPECT_EQ(complaint("sensitive_layer_names", List{"a", ""}), "sensitive_layer_names: a name is empty");
  EXPECT_EQ(complaint("sensitive_layer_names", List{"a\xff"}), R"(sensitive_layer_names: 'a\xff' is not UTF-8)");
  EXPECT_EQ(complaint("sensitive_layer_patterns", List{""}), "sensitive_layer_patterns: a name is empty");
  EXPECT_EQ(complaint("sensitive_layer_patterns", List{"a", "b("}),
            "sensitive_layer_patterns: 'b(' is not a valid regular expression: missing ): b(");
  EXPECT_EQ(complaint("sensitive_layer_patterns", List(1001, "a")),
            "sensitive_layer_patterns is 1001 entries long, it must be at most 1000");
  EXPECT_EQ(complaint("layer_bit_widths", Pairs{{"", "4"}}), "layer_bit_widths: a name is empty");
  EXPECT_EQ(complaint("layer_bit_widths", Pairs{{"lm_head", "7"}}),
            "layer_bit_widths: 'lm_head' is 7, it must be 2, 3, 4, 5, 6, 8 or 16");
  EXPECT_EQ(complaint("layer_bit_widths", Pairs{{"lm_head", "4bit"}}),
            "layer_bit_widths: 'lm_head' is '4bit', it must be 2, 3, 4, 5, 6, 8 or 16");
}

TEST(QuantizeConfig, UnknownSettingsSuggestTheClosest) {
  EXPECT_EQ(complaint("bit_widht", "4"), "unknown setting 'bit_widht'; did you mean bit_width?");
  EXPECT_EQ(complaint("groupsize", "4"), "unknown setting 'groupsize'; did you mean group_size?");
  EXPECT_EQ(complaint("bits", "4"),
            "unknown setting 'bits'; the settings are deployment_profile, bit_width, group_size, type, strategy, asymmetric, "
            "method, format, recipe, "
            "modality, "
            "min_accuracy, fail_fast, skip_sensitive_layers, sensitive_layer_names, sensitive_layer_patterns, layer_bit_widths, "
            "num_threads, max_memory_limit_mb, target_model_size_mb, enable_time_aware, enable_spatial, num_time_groups, "
            "calibration_samples");
}

TEST(QuantizeConfig, FloatTypesFixBitsAndGroupSize) {
  const auto typed = [](std::string type, ConfigFields more = {}) {
    more.insert({{"type", std::move(type)}, {"format", "mlx"}});
    return made({more});
  };
  for (const char* const profile : {"edge", "local", "cloud"}) {
    const auto config = typed("nvfp4", {{"deployment_profile", profile}});
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->bit_width, 4);
    EXPECT_EQ(config->group_size, 16);
  }
  EXPECT_EQ(typed("mxfp8").value().bit_width, 8);
  EXPECT_EQ(typed("mxfp4").value().group_size, 32);
  EXPECT_TRUE(typed("mxfp8", {{"bit_width", "8"}, {"group_size", "32"}}));
  EXPECT_TRUE(typed("mxfp4", {{"layer_bit_widths", Pairs{{"lm_head", "16"}}}}));
  // A config that is not made from fields has the numbers of its profile.
  EXPECT_TRUE(validate({.type = QuantizeType::kMxfp4, .format = QuantizeFormat::kMlx}));

  const auto complaint = [&](const char* type, ConfigFields more) { return typed(type, std::move(more)).error().message; };
  EXPECT_EQ(complaint("mxfp4", {{"bit_width", "8"}}), "bit_width is 8, but type mxfp4 fixes it to 4; leave out bit_width");
  EXPECT_EQ(complaint("mxfp4", {{"group_size", "128"}}),
            "group_size is 128, but type mxfp4 fixes it to 32; leave out group_size");
  EXPECT_EQ(complaint("int", {{"group_size", "16"}}), "group_size is 16, it must be 32, 64, 128 or 256");
  EXPECT_EQ(complaint("mxfp8", {{"method", "hqq"}}),
            "method is hqq, which needs type int, not mxfp8; give method auto, search or rtn");
  EXPECT_EQ(complaint("mxfp8", {{"recipe", "mixed_4_6"}}),
            "recipe is mixed_4_6, but type mxfp8 fixes the bits; leave out recipe");
  EXPECT_EQ(complaint("nvfp4", {{"target_model_size_mb", "5"}}),
            "target_model_size_mb needs a choice of bits, but type nvfp4 fixes them; leave out target_model_size_mb");
  EXPECT_EQ(complaint("nvfp4", {{"layer_bit_widths", Pairs{{"lm_head", "8"}}}}),
            "layer_bit_widths: 'lm_head' is 8, with type nvfp4 it must be 16");
  EXPECT_EQ(made({{{"type", "mxfp4"}}}).error().message,
            "type is mxfp4, which format parquet does not have; give format mlx or compressed-tensors");
}

TEST(QuantizeConfig, MlxHasNoGroupsOf256) {
  EXPECT_TRUE(fails(made({{{"format", "mlx"}, {"group_size", "256"}}}), Errc::kInvalidArgument,
                    "group_size is 256, with format mlx it must be 32, 64 or 128"));
  EXPECT_TRUE(made({{{"format", "parquet"}, {"group_size", "256"}}}));
  EXPECT_TRUE(made({{{"format", "mlx"}, {"group_size", "128"}}}));
}

TEST(QuantizeConfig, ConfigsMadeByHandAreChecked) {
  const auto valid = [](const auto& change) {
    QuantizeConfig config;
    change(config);
    return validate(config);
  };
  using Config = QuantizeConfig;
  EXPECT_TRUE(validate({}));
  EXPECT_TRUE(fails(valid([](Config& c) { c.bit_width = 16; }), Errc::kInvalidArgument,
                    "bit_width is 16, it must be 2, 3, 4, 5, 6 or 8"));
  EXPECT_TRUE(fails(valid([](Config& c) { c.min_accuracy = std::numeric_limits<double>::quiet_NaN(); }), Errc::kInvalidArgument,
                    "min_accuracy is nan, it must be from 0 to 1"));
  EXPECT_TRUE(fails(valid([](Config& c) { c.modality = Modality::kUnknown; }), Errc::kInvalidArgument,
                    "modality is unknown, it must be text, code, image or audio"));
  EXPECT_TRUE(fails(valid([](Config& c) { c.sensitive_layer_patterns = {"["}; }), Errc::kInvalidArgument,
                    "sensitive_layer_patterns: '[' is not a valid regular expression: missing ]: ["));
  EXPECT_TRUE(fails(valid([](Config& c) { c.max_memory_limit = 384; }), Errc::kInvalidArgument,
                    "max_memory_limit_mb is 0, it must be from 16 to 1048576"));
  EXPECT_TRUE(fails(valid([](Config& c) { c.target_model_size = 0; }), Errc::kInvalidArgument,
                    "target_model_size_mb is 0, it must be a number above 0"));
  EXPECT_TRUE(fails(valid([](Config& c) { c.layer_bit_widths = {{"a", 1}}; }), Errc::kInvalidArgument,
                    "layer_bit_widths: 'a' is 1, it must be 2, 3, 4, 5, 6, 8 or 16"));
}

// Sets variables, and takes them back.
class Environment : public testing::Test {
 protected:
  void set(const char* variable, const char* value) {
    ::setenv(variable, value, 1);  // NOLINT(concurrency-mt-unsafe): the tests have one thread
    variables_.emplace_back(variable);
  }
  void TearDown() override {
    for (const std::string& variable : variables_) ::unsetenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
    variables_.clear();
  }

 private:
  std::vector<std::string> variables_;
};

TEST_F(Environment, IsEmptyByDefault) {
  set("BALLAST_FULL", "1");
  set("BALLAST_BUILD_DIR", "/tmp");
  set("BALLAST_BITS", "3");
  set("BIT_WIDTH", "3");
  set("BALLAST_BIT_WIDTH", "");
  const auto fields = config_fields_from_environment();
  ASSERT_TRUE(fields) << fields.error().message;
  EXPECT_THAT(*fields, IsEmpty());
}

TEST_F(Environment, HasAVariableForEveryField) {
  set("BALLAST_DEPLOYMENT_PROFILE", "cloud");
  set("BALLAST_BIT_WIDTH", "3");
  set("BALLAST_GROUP_SIZE", "32");
  set("BALLAST_TYPE", "int");
  set("BALLAST_METHOD", "hqq");
  set("BALLAST_FORMAT", "mlx");
  set("BALLAST_RECIPE", "mixed_4_6");
  set("BALLAST_MODALITY", "image");
  set("BALLAST_MIN_ACCURACY", "0.5");
  set("BALLAST_FAIL_FAST", "1");
  set("BALLAST_SKIP_SENSITIVE_LAYERS", "true");
  set("BALLAST_SENSITIVE_LAYER_NAMES", "a, b.*");
  set("BALLAST_SENSITIVE_LAYER_PATTERNS", "^x+$");
  set("BALLAST_LAYER_BIT_WIDTHS", "lm_head=8, a=b=16");
  set("BALLAST_NUM_THREADS", " 7 ");
  set("BALLAST_MAX_MEMORY_LIMIT_MB", "100");
  set("BALLAST_NUM_TIME_GROUPS", "4");
  set("BALLAST_ENABLE_TIME_AWARE", "on");
  set("BALLAST_ENABLE_SPATIAL", "no");
  set("BALLAST_CALIBRATION_SAMPLES", "9");
  set("BALLAST_TARGET_MODEL_SIZE_MB", "12.5");
  const auto fields = config_fields_from_environment();
  ASSERT_TRUE(fields) << fields.error().message;
  EXPECT_EQ(fields->size(), 21);
  QuantizeConfig expected = with_every_setting();
  expected.recipe = Recipe::kMixed4And6;
  expected.modality = Modality::kImage;
  expected.sensitive_layer_patterns = {"^x+$"};
  expected.layer_bit_widths = {{"lm_head", 8}, {"a=b", 16}};
  EXPECT_EQ(made({*fields}), expected);
}

TEST_F(Environment, ErrorsNameTheVariable) {
  const auto complaint = [&](const char* variable, const char* value) {
    set(variable, value);
    const auto fields = config_fields_from_environment();
    TearDown();
    return fields ? "no complaint" : fields.error().message;
  };
  EXPECT_EQ(complaint("BALLAST_BIT_WIDTH", "9"), "BALLAST_BIT_WIDTH is 9, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("BALLAST_METHOD", "\x1b[1m"), R"(BALLAST_METHOD is '\x1b[1m', it must be auto, rtn, search or hqq)");
  EXPECT_EQ(complaint("BALLAST_SENSITIVE_LAYER_NAMES", "a,,b"), "BALLAST_SENSITIVE_LAYER_NAMES: a name is empty");
  EXPECT_EQ(complaint("BALLAST_SENSITIVE_LAYER_PATTERNS", "a)"),
            "BALLAST_SENSITIVE_LAYER_PATTERNS: 'a)' is not a valid regular expression: unexpected ): a)");
  EXPECT_EQ(complaint("BALLAST_LAYER_BIT_WIDTHS", "a=4,lm_head"), "BALLAST_LAYER_BIT_WIDTHS: 'lm_head' must be NAME=BITS");
  EXPECT_EQ(complaint("BALLAST_LAYER_BIT_WIDTHS", "a=4,a=8"), "BALLAST_LAYER_BIT_WIDTHS: 'a' is given twice");
  EXPECT_EQ(complaint("BALLAST_LAYER_BIT_WIDTHS", "a="),
            "BALLAST_LAYER_BIT_WIDTHS: 'a' is '', it must be 2, 3, 4, 5, 6, 8 or 16");
}

}  // namespace
}  // namespace ballast
