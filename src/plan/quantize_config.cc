#include <ballast/quantize_config.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <ranges>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "plan/config_fields.h"
#include "plan/type_settings.h"

namespace ballast {
namespace {

// The settings in which profiles differ.
struct ProfileValues {
  unsigned bit_width = 0;
  unsigned num_time_groups = 0;
  unsigned group_size = 0;
  double min_accuracy = 0;
  unsigned calibration_samples = 0;
  std::optional<bool> enable_spatial;
};

constexpr std::array<ProfileValues, 3> kProfiles{{
    {.bit_width = 2,
     .num_time_groups = 5,
     .group_size = 256,
     .min_accuracy = 0.65,
     .calibration_samples = 32,
     .enable_spatial = false},
    {.bit_width = 4,
     .num_time_groups = 10,
     .group_size = 128,
     .min_accuracy = 0.85,
     .calibration_samples = 128,
     .enable_spatial = {}},
    {.bit_width = 8,
     .num_time_groups = 20,
     .group_size = 64,
     .min_accuracy = 0.95,
     .calibration_samples = 512,
     .enable_spatial = {}},
}};

std::string variable_of(std::string_view field) {
  std::string variable = "BALLAST_";
  for (const char c : field) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

// Parses a field's value from one line of text.
Result<ConfigValue> parse_line(const ConfigField& field, std::string_view text) {
  ConfigValue value = field.empty_value();
  if (std::holds_alternative<std::string>(value)) return std::string(trimmed(text));
  for (const auto part : std::views::split(text, ',')) {
    const std::string_view entry = trimmed({part.begin(), part.end()});
    if (auto* const list = std::get_if<std::vector<std::string>>(&value)) {
      list->emplace_back(entry);
      continue;
    }
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string_view::npos) return fail(Errc::kInvalidArgument, "{} must be NAME=BITS", quote(entry));
    const std::string_view name = trimmed(entry.substr(0, equals));
    auto& pairs = std::get<std::map<std::string, std::string>>(value);
    if (!pairs.emplace(name, trimmed(entry.substr(equals + 1))).second) {
      return fail(Errc::kInvalidArgument, "{} is given twice", quote(name));
    }
  }
  return value;
}

}  // namespace

std::string_view name(QuantizeFormat format) {
  constexpr std::array<std::string_view, 4> kNames{"parquet", "mlx", "compressed-tensors", "hf-fp8"};
  return kNames[static_cast<std::size_t>(format)];
}

std::string_view name(Profile profile) {
  constexpr std::array<std::string_view, 3> kNames{"edge", "local", "cloud"};
  return kNames[static_cast<std::size_t>(profile)];
}

std::string_view name(Recipe recipe) {
  constexpr std::array<std::string_view, 5> kNames{"uniform", "mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"};
  return kNames[static_cast<std::size_t>(recipe)];
}

QuantizeConfig QuantizeConfig::for_profile(Profile profile) {
  const ProfileValues& values = kProfiles[static_cast<std::size_t>(profile)];
  return {.deployment_profile = StartingProfile(profile),
          .bit_width = values.bit_width,
          .group_size = values.group_size,
          .min_accuracy = values.min_accuracy,
          .enable_spatial = values.enable_spatial,
          .num_time_groups = values.num_time_groups,
          .calibration_samples = values.calibration_samples};
}

QuantizeConfig QuantizeConfig::edge() { return for_profile(Profile::kEdge); }
QuantizeConfig QuantizeConfig::local() { return for_profile(Profile::kLocal); }
QuantizeConfig QuantizeConfig::cloud() { return for_profile(Profile::kCloud); }

Result<ConfigFields> config_fields_from_environment() {
  ConfigFields fields;
  for (const ConfigField& field : config_fields()) {
    const std::string variable = variable_of(field.name);
    const char* const text = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe): as safe as those who call setenv
    if (text == nullptr || *text == '\0') continue;
    auto value = parse_line(field, text);
    if (!value) return fail_at(variable, value.error());
    QuantizeConfig scratch;
    if (const auto set = field.set(variable, *value, scratch); !set) return std::unexpected(set.error());
    fields.emplace(field.name, std::move(*value));
  }
  return fields;
}

Result<QuantizeConfig> make_quantize_config(std::span<const ConfigFields> sources) {
  constexpr std::string_view kProfile = "deployment_profile";
  QuantizeConfig config;
  for (const ConfigFields& source : sources) {
    const auto named = source.find(kProfile);
    if (named == source.end()) continue;
    const auto field = find_config_field(kProfile);
    if (const auto set = (*field)->set(kProfile, named->second, config); !set) return std::unexpected(set.error());
  }
  for (const ConfigFields& source : sources) {
    for (const auto& [name, value] : source) {
      if (name == kProfile) continue;
      const auto field = TRY(find_config_field(name));
      if (const auto set = field->set(name, value, config); !set) return std::unexpected(set.error());
    }
  }
  const auto is_given = [&](std::string_view name) {
    return std::ranges::any_of(sources, [&](const ConfigFields& source) { return source.contains(name); });
  };
  TRY(check_given(config, {.bit_width = is_given("bit_width"), .group_size = is_given("group_size"), .type = is_given("type")}));
  TRY(validate(config));
  return with_numbers_of_type(std::move(config));
}

Result<void> validate(const QuantizeConfig& config) {
  for (const ConfigField& field : config_fields()) {
    TRY(field.check(field.name, config));
  }
  return check_type(config);
}

}  // namespace ballast
