#include "scheme/packed_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

using Keys = std::span<const std::string_view>;

constexpr std::array<std::string_view, 3> kBits{"bits", "w_bit", "wbits"};
constexpr std::array<std::string_view, 2> kGroupSize{"group_size", "q_group_size"};
constexpr std::array<std::string_view, 3> kFormat{"checkpoint_format", "format", "version"};
constexpr std::array<std::string_view, 1> kOrder{"desc_act"};
constexpr std::array<std::string_view, 1> kSymmetric{"sym"};
constexpr std::array<Keys, 5> kFields{kBits, kGroupSize, kFormat, kOrder, kSymmetric};

std::optional<std::string_view> first_key(const Section& section, Keys keys) {
  const auto found = std::ranges::find_if(keys, [&](std::string_view key) { return section.has(key); });
  return found == keys.end() ? std::nullopt : std::optional(*found);
}

std::string value_of(const Section& section, std::string_view key) {
  return lowercase(describe(section.object()[key].value_unsafe()));
}

// Whether the module stays a float is for the caller to see: then `bits` is 16 or more.
Result<PackedSettings> read_settings(const Section& section) {
  PackedSettings settings;
  if (const auto key = first_key(section, kBits)) {
    const auto bits = TRY(section.number(*key));
    if (bits < 1 || bits > 64) return section.wrong(*key, "2, 3, 4 or 8");
    settings.bits = static_cast<unsigned>(*bits);
  }
  if (const auto key = first_key(section, kGroupSize)) {
    const auto size = TRY(section.number(*key));
    if (size < 1 && size != -1) return section.wrong(*key, "a positive number, or -1 for all columns");
    settings.group_size = size == -1 ? 0 : static_cast<std::uint64_t>(*size);
  }
  return settings;
}

}  // namespace

Result<PackedConfig> PackedConfig::parse(const Model& model, std::span<const Declared> declared) {
  PackedConfig config;
  for (const Declared& each : declared) config.sections_.push_back(TRY(Section::parse(each)));
  TRY(config.check_agreement());
  for (const Section& section : config.sections_) {
    const PackedSettings settings = TRY(read_settings(section));
    if (!config.settings_.bits) config.settings_.bits = settings.bits;
    if (!config.settings_.group_size) config.settings_.group_size = settings.group_size;
  }
  TRY(config.add_extra(model));
  TRY(config.add_dynamic());
  return config;
}

Result<void> PackedConfig::check_agreement() const {
  for (const Keys keys : kFields) {
    const Section& first = sections_.front();
    const auto key = first_key(first, keys);
    if (!key) continue;
    for (const Section& other : sections_) {
      const auto other_key = first_key(other, keys);
      if (!other_key || value_of(first, *key) == value_of(other, *other_key)) continue;
      return fail(Errc::kCorrupt, "{}: {} is {}, but {} has {} {}; remove the section that does not belong to these weights",
                  first.place(), *key, value_of(first, *key), other.place(), *other_key, value_of(other, *other_key));
    }
  }
  return {};
}

Result<std::optional<std::string>> PackedConfig::text(Keys keys) const {
  for (const Section& section : sections_) {
    const auto key = first_key(section, keys);
    if (!key) continue;
    const auto text = TRY(section.text(*key));
    return lowercase(*text);
  }
  return std::nullopt;
}

Result<std::optional<bool>> PackedConfig::flag(std::string_view key) const {
  for (const Section& section : sections_) {
    if (const auto flag = TRY(section.flag(key))) return flag;
  }
  return std::nullopt;
}

Result<void> PackedConfig::add(Override override, const Section& section) {
  constexpr unsigned kFloatBits = 16;
  override.settings = TRY(read_settings(section));
  if (override.settings.bits >= kFloatBits) override.is_quantized = false;
  overrides_.push_back(std::move(override));
  return {};
}

// "+:regex" and plain patterns change settings, "-:regex" leaves modules unquantized. They match from the start of the name.
Result<void> PackedConfig::add_dynamic() {
  for (const Section& section : sections_) {
    const auto dynamic = TRY(section.section("dynamic"));
    if (!dynamic) continue;
    for (const auto& [key, settings] : dynamic->sections()) {
      const bool has_prefix = key.starts_with("+:") || key.starts_with("-:");
      const std::string_view pattern = key.substr(has_prefix ? 2 : 0);
      auto regex = Regex::compile(std::string("^(?:").append(pattern).append(")"));
      TRY(add({.name = {},
               .regex = regex ? std::optional(std::move(*regex)) : std::nullopt,
               .is_quantized = !key.starts_with("-:"),
               .settings = {}},
              settings));
    }
    return {};
  }
  return {};
}

// Names of modules, which come first, and patterns that match anywhere in a name.
Result<void> PackedConfig::add_extra(const Model& model) {
  const auto extra = TRY(section().section("extra_config"));
  if (!extra) return {};
  const auto is_module = [&](std::string_view name) {
    return model.has(std::string(name).append(".qweight")) || model.has(std::string(name).append(".weight"));
  };
  for (const auto& [key, settings] : extra->sections()) {
    if (is_module(key)) TRY(add({.name = std::string(key), .regex = {}, .is_quantized = true, .settings = {}}, settings));
  }
  for (const auto& [key, settings] : extra->sections()) {
    if (is_module(key)) continue;
    auto regex = Regex::compile(key);
    TRY(add({.name = {}, .regex = regex ? std::optional(std::move(*regex)) : std::nullopt, .is_quantized = true, .settings = {}},
            settings));
  }
  return {};
}

PackedSettings PackedConfig::of(std::string_view module) const {
  for (const Override& override : overrides_) {
    if (override.name.empty() && !override.regex) return {};
    if (override.regex ? !override.regex->found_in(module) : override.name != module) continue;
    if (!override.is_quantized) return {};
    return {.bits = override.settings.bits ? override.settings.bits : settings_.bits,
            .group_size = override.settings.group_size ? override.settings.group_size : settings_.group_size};
  }
  return settings_;
}

Result<void> refuse_rotation(const Section& section) {
  constexpr std::array<std::string_view, 3> kKeys{"rotation", "rotation_config", "spinquant_config"};
  const auto key = first_key(section, kKeys);
  if (!key) return {};
  simdjson::dom::object settings;
  if (section.object()[*key].get(settings) == simdjson::SUCCESS && settings.size() == 0) return {};
  return fail(Errc::kUnsupported,
              "{}: {} is set: the weights are rotated, and Ballast cannot undo that; use a checkpoint without rotation",
              section.place(), *key);
}

Result<void> refuse_conv1d(const Model& model) {
  constexpr std::array<std::string_view, 4> kModels{"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
  if (!model.config()) return {};
  simdjson::dom::parser parser;
  const auto document = TRY(parse_json(parser, model.config()->json));
  std::string_view type;
  if (document.at_key("model_type").get(type) != simdjson::SUCCESS || std::ranges::find(kModels, type) == kModels.end())
    return {};
  return fail(
      Errc::kUnsupported,
      "{}: config.json: model_type is '{}', whose dense layers are transposed, unlike these quantized ones; dequantize the "
      "model with the tool that made it",
      escape(model.path()), type);
}

}  // namespace ballast
