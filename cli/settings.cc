#include "settings.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "terminal.h"

namespace ballast::cli {
namespace {

constexpr const char* kUnquantizedNames = "sensitive_layer_names";

std::string variable_of(std::string_view field) {
  std::string variable = "BALLAST_";
  for (const char c : field) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

Result<ConfigFields> read_file(const std::string& path) {
  if (path.empty()) return {};
  auto fields = read_config_fields(path, was_interrupted);
  if (fields) return fields;
  const Errc code = fields.error().code == Errc::kCancelled ? Errc::kCancelled : Errc::kInvalidArgument;
  return std::unexpected(Error{.code = code, .message = fmt::format("--config {}", fields.error().message)});
}

// Later sources win, so each setting has the spelling of the last that has it, or its option if none has.
Spelling spelling_of(const SettingsArguments& arguments, const ConfigFields& file, const ConfigFields& environment) {
  Spelling spelling = arguments.options;
  for (const auto& [field, value] : file) spelling[field] = field;
  for (const auto& [field, value] : environment) spelling[field] = variable_of(field);
  for (const auto& [field, value] : arguments.fields) spelling[field] = arguments.options.find(field)->second;
  // These add up.
  if (const bool is_set = file.contains(kUnquantizedNames) || environment.contains(kUnquantizedNames);
      is_set && !arguments.keep.empty()) {
    spelling[kUnquantizedNames] += " or --keep";
  }
  return spelling;
}

}  // namespace

Result<Settings> read_settings(const SettingsArguments& arguments) {
  auto file = read_file(arguments.config);
  if (!file) return std::unexpected(std::move(file.error()));
  auto environment = config_fields_from_environment();
  if (!environment) return std::unexpected(std::move(environment.error()));
  Spelling spelling = spelling_of(arguments, *file, *environment);
  const std::vector<ConfigFields> sources{std::move(*file), std::move(*environment), arguments.fields};
  auto config = make_quantize_config(sources);
  if (!config) {
    config.error().message = spelled(config.error().message, spelling);
    return std::unexpected(std::move(config.error()));
  }
  Settings settings{.config = std::move(*config), .spelling = std::move(spelling), .warnings = {}};
  const auto is_set = [&](const char* field) {
    return std::ranges::any_of(sources, [&](const ConfigFields& fields) { return fields.contains(field); });
  };
  settings.names_format = is_set("format");
  for (const char* const field : {"num_time_groups", "calibration_samples"}) {
    if (arguments.has_calibration || !is_set(field)) continue;
    settings.warnings.push_back(fmt::format("{} has no effect without --calibration", settings.spelling.find(field)->second));
  }
  auto& names = settings.config.sensitive_layer_names;
  names.insert(names.end(), arguments.keep.begin(), arguments.keep.end());
  return settings;
}

}  // namespace ballast::cli
