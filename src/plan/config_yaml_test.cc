#include <gmock/gmock.h>

#include <ballast/quantize_config.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using List = std::vector<std::string>;
using Pairs = std::map<std::string, std::string>;

Result<QuantizeConfig> read(std::string_view yaml) {
  const auto fields = parse_config_fields(yaml);
  if (!fields) return std::unexpected(fields.error());
  return make_quantize_config(std::span(&*fields, 1));
}

std::string complaint(std::string_view yaml) {
  const auto fields = parse_config_fields(yaml);
  if (fields) return "no complaint";
  EXPECT_EQ(fields.error().code, Errc::kInvalidArgument);
  return fields.error().message;
}

TEST(ConfigYaml, ReadsWordsListsAndPairs) {
  const auto fields = parse_config_fields(
      "# how\n"
      "bit_width: 3\n"
      "min_accuracy: \"0.9\"\n"
      "fail_fast: yes\n"
      "sensitive_layer_names: [lm_head, 'model.*']\n"
      "sensitive_layer_patterns:\n"
      "  - ^a\\.b$\n"
      "  - \"[0-9]{1,2}\"\n"
      "layer_bit_widths:\n"
      "  lm_head: 8\n"
      "  \"*.mlp.*\": 2\n");
  ASSERT_TRUE(fields) << fields.error().message;
  EXPECT_THAT(*fields, ElementsAre(Pair("bit_width", ConfigValue("3")), Pair("fail_fast", ConfigValue("yes")),
                                   Pair("layer_bit_widths", ConfigValue(Pairs{{"lm_head", "8"}, {"*.mlp.*", "2"}})),
                                   Pair("min_accuracy", ConfigValue("0.9")),
                                   Pair("sensitive_layer_names", ConfigValue(List{"lm_head", "model.*"})),
                                   Pair("sensitive_layer_patterns", ConfigValue(List{"^a\\.b$", "[0-9]{1,2}"}))));
}

TEST(ConfigYaml, JsonIsYaml) {
  const auto config = read(R"({"bit_width": 8, "layer_bit_widths": {"a": 2}, "sensitive_layer_names": ["b"], "modality": null})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, (QuantizeConfig{.bit_width = 8, .sensitive_layer_names = {"b"}, .layer_bit_widths = {{"a", 2}}}));
}

TEST(ConfigYaml, AnEmptyDocumentHasNoFields) {
  for (const char* const yaml : {"", "\n\n", "# nothing\n", "---\n", "--- {}\n", "null", "---\n...\n", "\xef\xbb\xbf"}) {
    const auto fields = parse_config_fields(yaml);
    ASSERT_TRUE(fields) << yaml << ": " << fields.error().message;
    EXPECT_THAT(*fields, IsEmpty()) << yaml;
  }
}

TEST(ConfigYaml, NullIsNothingOfItsKind) {
  const auto config = read("modality:\ntarget_model_size_mb: ~\nsensitive_layer_names:\nlayer_bit_widths: null\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, QuantizeConfig{});
  EXPECT_EQ(complaint("format: mlx\nbit_width:\n"), "line 2: bit_width is '', it must be 2, 3, 4, 5, 6 or 8");
}

TEST(ConfigYaml, ErrorsSayTheLine) {
  EXPECT_EQ(complaint("format: mlx\n\nbit_width: 9\n"), "line 3: bit_width is 9, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("format: mlx\nbit_widht: 7\n"), "line 2: unknown setting 'bit_widht'; did you mean bit_width?");
  EXPECT_EQ(complaint("bit_width: 4\nformat: mlx\nbit_width: 4\n"), "line 3: bit_width is set twice, first in line 1");
  EXPECT_EQ(complaint("layer_bit_widths:\n  a: 2\n  b: 3\n  a: 4\n"), "line 4: layer_bit_widths names 'a' twice");
  EXPECT_EQ(complaint("layer_bit_widths: {a: 1}"), "line 1: layer_bit_widths: 'a' is 1, it must be 2, 3, 4, 5, 6, 8 or 16");
  EXPECT_EQ(complaint("sensitive_layer_patterns:\n- a\n- '('\n"),
            "line 1: sensitive_layer_patterns: '(' is not a valid regular expression: missing ): (");
  EXPECT_EQ(complaint("sensitive_layer_names:\n-\n"), "line 1: sensitive_layer_names: a name is empty");
  EXPECT_EQ(complaint("min_accuracy: .nan"), "line 1: min_accuracy is '.nan', it must be from 0 to 1");
  EXPECT_EQ(complaint("num_threads: 99999999999999999999"),
            "line 1: num_threads is '99999999999999999999', it must be from 0 to 1024");
}

TEST(ConfigYaml, NodesOfTheWrongKind) {
  EXPECT_EQ(complaint("- bit_width"), "line 1: the document is a list, it must be a mapping of settings such as bit_width: 4");
  EXPECT_EQ(complaint("bit_width"), "line 1: the document is 'bit_width', it must be a mapping of settings such as bit_width: 4");
  EXPECT_EQ(complaint("bit_width: [4]"), "line 1: bit_width is a list, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("bit_width: {a: b}"), "line 1: bit_width is a mapping, it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("sensitive_layer_names: a"), "line 1: sensitive_layer_names is 'a', it must be a list");
  EXPECT_EQ(complaint("sensitive_layer_names:\n  - [a]\n"),
            "line 2: sensitive_layer_names contains a list, but values cannot be nested; is a bracket not closed?");
  EXPECT_EQ(complaint("sensitive_layer_names: [a: b]"),
            "line 1: sensitive_layer_names contains a mapping, but values cannot be nested; is a bracket not closed?");
  EXPECT_EQ(complaint("layer_bit_widths:\n  a:\n    bits: 4\n"),
            "line 3: layer_bit_widths contains a mapping, but values cannot be nested; is a bracket not closed?");
  EXPECT_EQ(complaint("layer_bit_widths: [a]"), "line 1: layer_bit_widths is a list, it must be a mapping from names to bits");
  EXPECT_EQ(complaint("? [a]\n: 4\n"), "line 1: expected the name of a setting, found a list");
  EXPECT_EQ(complaint("? {a: b}\n: 4\n"), "line 1: expected the name of a setting, found a mapping");
}

TEST(ConfigYaml, AnchorsAliasesAndTagsAreRefused) {
  EXPECT_EQ(complaint("bit_width: &a 4\ngroup_size: *a\n"), "line 1: anchors and aliases are not supported");
  EXPECT_EQ(complaint("sensitive_layer_names: &a [x]\n"), "line 1: anchors and aliases are not supported");
  EXPECT_EQ(complaint("&a bit_width: 4\n"), "line 1: anchors and aliases are not supported");
  EXPECT_EQ(complaint("bit_width: *a\n"), "line 1: the referenced anchor is not defined");
  EXPECT_EQ(complaint("bit_width: !!int 4\n"), "line 1: tags such as 'tag:yaml.org,2002:int' are not supported");
  EXPECT_EQ(complaint("layer_bit_widths: !!python/object {}\n"),
            "line 1: tags such as 'tag:yaml.org,2002:python/object' are not supported");
}

TEST(ConfigYaml, WhatIsNotYamlIsRefused) {
  EXPECT_EQ(complaint("format: mlx\nbit_width: 4: 5\n"), "line 2: illegal map value");
  EXPECT_EQ(complaint("bit_width: \"4\n"), "line 3: illegal document indicator in scalar");
  EXPECT_EQ(complaint("bit_width: 4\n  group_size: 32\n"), "line 1: bit_width is '4 group_size', it must be 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(complaint("sensitive_layer_names: [a"),
            "line 1: sensitive_layer_names contains a mapping, but values cannot be nested; is a bracket not closed?");
  EXPECT_EQ(complaint("bit_width: 4\n---\nbit_width: 5\n"), "line 2: a second YAML document begins here; give one");
  EXPECT_EQ(complaint("bit_width: 4\n]\n"), "line 2: illegal flow end");
}

TEST(ConfigYaml, TextThatIsNotTextIsRefused) {
  EXPECT_EQ(complaint("bit_width: 4\xff\n"), "the document is not UTF-8");
  EXPECT_EQ(complaint(std::string_view("\xff\xfe"
                                       "b\0i\0",
                                       6)),
            "the document is not UTF-8");
  EXPECT_EQ(complaint(std::string_view("b\0i\0t\0", 6)), R"(line 1: control character '\x00' is not allowed)");
  EXPECT_EQ(complaint("format: mlx\nbit_width: 4\x04\n]["), R"(line 2: control character '\x04' is not allowed)");
}

TEST(ConfigYaml, LongDocumentsAreRefused) {
  const std::string most = "#" + std::string(999'999, ' ');
  EXPECT_TRUE(parse_config_fields(most));
  EXPECT_EQ(complaint(most + " "), "the document has 1000001 bytes, the limit is 1000000");
}

// None of these may take long, or much memory, or the stack.
TEST(ConfigYaml, DeepNestingIsRefused) {
  const std::string deep(999'000, '[');
  EXPECT_EQ(complaint(deep), "line 1: expected the name of a setting, found a list");
  EXPECT_EQ(complaint("sensitive_layer_names: " + deep),
            "line 1: sensitive_layer_names contains a mapping, but values cannot be nested; is a bracket not closed?");
  EXPECT_EQ(complaint(std::string(999'000, '{')), "line 1: expected the name of a setting, found a mapping");
  std::string questions;
  while (questions.size() < 100'000) questions += "? ";
  EXPECT_EQ(complaint(questions), "line 1: expected the name of a setting, found a mapping");
  std::string dashes;
  while (dashes.size() < 100'000) dashes += "- ";
  EXPECT_EQ(complaint(dashes), "line 1: the document is a list, it must be a mapping of settings such as bit_width: 4");
}

TEST(ConfigYaml, AnAliasBombDoesNotGoOff) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    const char before = static_cast<char>(c - 1);
    bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c, before);
  }
  EXPECT_THAT(complaint(bomb), testing::StartsWith("line 1: unknown setting 'a'; the settings are "));
  EXPECT_EQ(complaint("sensitive_layer_names: &a [*a, *a]\n"), "line 1: anchors and aliases are not supported");
}

TEST(ConfigYaml, AFileIsAConfig) {
  const test::TempDir dir;
  const std::string path = dir.write("settings.yaml", "bit_width: 3\ndeployment_profile: cloud\n");
  QuantizeConfig expected = QuantizeConfig::cloud();
  expected.bit_width = 3;
  EXPECT_EQ(QuantizeConfig::from_yaml(path).value(), expected);
  EXPECT_EQ(QuantizeConfig::from_yaml(dir.write("empty.yaml", "")).value(), QuantizeConfig{});
}

TEST(ConfigYaml, ErrorsOfAFileNameIt) {
  const test::TempDir dir;
  const std::string wrong = dir.write("wrong.yaml", "format: mlx\nbit_width: 9\n");
  EXPECT_TRUE(fails(QuantizeConfig::from_yaml(wrong), Errc::kInvalidArgument,
                    wrong + ": line 2: bit_width is 9, it must be 2, 3, 4, 5, 6 or 8"));
  const std::string both = dir.write("both.yaml", "format: mlx\ngroup_size: 256\n");
  EXPECT_TRUE(fails(QuantizeConfig::from_yaml(both), Errc::kInvalidArgument,
                    both + ": group_size is 256, with format mlx it must be 32, 64 or 128"));
  EXPECT_TRUE(fails(QuantizeConfig::from_yaml(dir.path("none.yaml")), Errc::kNotFound,
                    dir.path("none.yaml") + ": cannot open: No such file or directory"));
}

TEST(ConfigYaml, WritesEveryField) {
  EXPECT_EQ(to_yaml({}),
            "deployment_profile: local\n"
            "bit_width: 4\n"
            "group_size: 128\n"
            "type: int\n"
            "strategy: null\n"
            "asymmetric: false\n"
            "method: auto\n"
            "format: parquet\n"
            "recipe: uniform\n"
            "modality: null\n"
            "min_accuracy: 0.85\n"
            "fail_fast: false\n"
            "skip_sensitive_layers: false\n"
            "sensitive_layer_names: []\n"
            "sensitive_layer_patterns: []\n"
            "layer_bit_widths: {}\n"
            "num_threads: 0\n"
            "max_memory_limit_mb: 384\n"
            "target_model_size_mb: null\n"
            "enable_time_aware: null\n"
            "enable_spatial: null\n"
            "num_time_groups: 10\n"
            "calibration_samples: 128\n");
  const std::string yaml = to_yaml({.modality = Modality::kCode,
                                    .sensitive_layer_names = {"null", "a: b"},
                                    .sensitive_layer_patterns = {R"(^\d+"$)"},
                                    .layer_bit_widths = {{"*.mlp", 2}, {"x", 16}}});
  EXPECT_NE(yaml.find("modality: code\n"), std::string::npos);
  EXPECT_NE(yaml.find("sensitive_layer_names:\n  - \"null\"\n  - \"a: b\"\n"), std::string::npos);
  EXPECT_NE(yaml.find("sensitive_layer_patterns:\n  - \"^\\\\d+\\\"$\"\n"), std::string::npos);
  EXPECT_NE(yaml.find("layer_bit_widths:\n  \"*.mlp\": 2\n  \"x\": 16\n"), std::string::npos);
}

TEST(ConfigYaml, ReadsWhatItWrites) {
  const std::string odd = "\t\n\r\x01\x7f\\\"'#:&*!|>%@` \xc2\x85\xe2\x80\xa8\xf0\x9f\x98\x80 ";
  QuantizeConfig full = QuantizeConfig::edge();
  full.bit_width = 5;
  full.group_size = 32;
  full.method = QuantizeMethod::kRtn;
  full.format = QuantizeFormat::kMlx;
  full.recipe = Recipe::kMixed2And6;
  full.modality = Modality::kText;
  full.min_accuracy = 0.1 + 0.2;
  full.fail_fast = true;
  full.skip_sensitive_layers = true;
  full.sensitive_layer_names = {"null", "~", "", "1", odd, std::string(2000, 'n')};
  full.sensitive_layer_patterns = {R"(\.(gate|up)_proj\.)", "[\"']"};
  full.layer_bit_widths = {{odd, 2}, {"<<", 3}, {std::string(2000, 'k'), 16}, {std::string(1015, 'k'), 4}};
  full.num_threads = 3;
  full.max_memory_limit = std::uint64_t{64} << 20;
  full.target_model_size = 999'999'999'999'999;
  full.enable_time_aware = true;
  full.enable_spatial = false;
  full.num_time_groups = 1;
  full.calibration_samples = 77;
  QuantizeConfig config = full;
  config.sensitive_layer_names.erase(config.sensitive_layer_names.begin() + 2);
  const auto again = read(to_yaml(config));
  ASSERT_TRUE(again) << again.error().message << "\n" << to_yaml(config);
  EXPECT_EQ(*again, config);
  EXPECT_TRUE(fails(read(to_yaml(full)), Errc::kInvalidArgument, "line 14: sensitive_layer_names: a name is empty"));

  for (const Profile profile : {Profile::kEdge, Profile::kLocal, Profile::kCloud}) {
    EXPECT_EQ(read(to_yaml(QuantizeConfig::for_profile(profile))), QuantizeConfig::for_profile(profile));
  }
}

}  // namespace
}  // namespace ballast
