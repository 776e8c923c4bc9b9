#include "scheme/modelopt/config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <ballast/glob.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::array kAlgorithms{
    ModelOptAlgorithm{.name = "FP8", .codes = ModelOptCodes::kTensor},
    ModelOptAlgorithm{.name = "FP8_PER_CHANNEL_PER_TOKEN", .codes = ModelOptCodes::kChannel},
    ModelOptAlgorithm{.name = "FP8_PB_WO", .codes = ModelOptCodes::kBlock},
    ModelOptAlgorithm{.name = "MXFP8", .codes = ModelOptCodes::kMxfp8},
    ModelOptAlgorithm{.name = "NVFP4", .codes = ModelOptCodes::kNvfp4},
    ModelOptAlgorithm{.name = "W4A16_NVFP4", .codes = ModelOptCodes::kNvfp4},
    ModelOptAlgorithm{.name = "NVFP4_AWQ", .codes = ModelOptCodes::kNvfp4},
    ModelOptAlgorithm{.name = "W4A16_AWQ", .codes = ModelOptCodes::kAwq},
};

constexpr std::string_view kMixed = "MIXED_PRECISION";

Result<const ModelOptAlgorithm*> parse_algorithm(const Section& section, std::string_view text) {
  const auto found = std::ranges::find(kAlgorithms, text, &ModelOptAlgorithm::name);
  if (found != kAlgorithms.end()) return &*found;
  std::string names;
  for (const ModelOptAlgorithm& algorithm : kAlgorithms) names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
  return fail(Errc::kUnsupported, "{}: quant_algo {} is not supported; Ballast reads {} and {}", section.place(), quote(text),
              names, kMixed);
}

Result<std::uint64_t> parse_group_size(const Section& section) {
  constexpr std::string_view kKey = "group_size";
  const std::int64_t size = TRY(section.number(kKey)).value_or(0);
  if (size < 0) return section.wrong(kKey, "a positive number");
  return static_cast<std::uint64_t>(size);
}

// Empty if quant_algo is null or missing.
Result<ModelOptSettings> parse_settings(const Section& section) {
  ModelOptSettings settings;
  const auto text = TRY(section.text("quant_algo"));
  if (text && *text != kMixed) settings.algorithm = TRY(parse_algorithm(section, *text));
  settings.group_size = TRY(parse_group_size(section));
  return settings;
}

}  // namespace

std::span<const ModelOptAlgorithm> modelopt_algorithms() { return kAlgorithms; }

Result<ModelOptConfig> ModelOptConfig::parse(const Declared& declared) {
  const Section outer = TRY(Section::parse(declared));
  const Section section = TRY(outer.section("quantization")).value_or(outer);
  ModelOptConfig config{.place = section.place(),
                        .all = TRY(parse_settings(section)),
                        .by_module = {},
                        .excluded = {},
                        .excluded_globs = {},
                        .quantizes_weights = section.has("quant_algo")};
  if (const auto layers = TRY(section.section("quantized_layers"))) {
    for (const auto& [module, inner] : layers->sections()) config.by_module.emplace(module, TRY(parse_settings(inner)));
  }
  // "ignore" in config.json, "exclude_modules" in hf_quant_config.json.
  for (const std::string_view key : {"ignore", "exclude_modules"}) {
    for (const std::string_view name : TRY(section.texts(key))) {
      if (name.find_first_of("*?[") == std::string_view::npos) {
        config.excluded.emplace(name);
      } else {
        config.excluded_globs.emplace_back(name);
      }
    }
  }
  return config;
}

ModelOptSettings ModelOptConfig::settings_of(std::string_view module) const {
  for (std::string_view path = module; !path.empty() && !by_module.empty();) {
    if (const auto found = by_module.find(path); found != by_module.end()) return found->second;
    const std::size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
  return all;
}

std::string_view ModelOptConfig::excluding(std::string_view module) const {
  if (const auto exact = excluded.find(module); exact != excluded.end()) return *exact;
  const auto found = std::ranges::find_if(excluded_globs, [&](const std::string& glob) { return glob_match(glob, module); });
  return found != excluded_globs.end() ? std::string_view(*found) : std::string_view();
}

}  // namespace ballast
