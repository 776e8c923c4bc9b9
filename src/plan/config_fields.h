#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ballast/quantize_config.h>

namespace ballast {

// Describes one field of QuantizeConfig.
struct ConfigField {
  std::string_view name;
  // Both fail with kInvalidArgument; the message has `name`, the value and what is allowed. After set() fails, the field's value
  // is unspecified.
  Result<void> (*set)(std::string_view name, const ConfigValue& value, QuantizeConfig& config);
  Result<void> (*check)(std::string_view name, const QuantizeConfig& config);
  // The inverse of set(). An unset optional is an empty word.
  ConfigValue (*get)(const QuantizeConfig& config);
  // A value that the keys and the metadata of outputs leave out: these stay as they were before the field existed.
  std::optional<std::string_view> unrecorded;

  // An empty word, list or mapping, by the type of the field.
  ConfigValue empty_value() const;
  bool is_recorded(const QuantizeConfig& config) const;
};

std::span<const ConfigField> config_fields();  // in the order in which they are written

// Fails with kInvalidArgument and a name that may have been meant.
Result<const ConfigField*> find_config_field(std::string_view name);

// As to_yaml(), without what is not recorded.
std::string recorded_yaml(const QuantizeConfig& config);

}  // namespace ballast
