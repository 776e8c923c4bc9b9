#pragma once

#include <string>
#include <vector>

#include <ballast/quantize_config.h>

#include "spelling.h"

namespace ballast::cli {

// What the command line says about the settings of quantize.
struct SettingsArguments {
  std::string config;   // path of a YAML file
  ConfigFields fields;  // from options
  Spelling options;     // the option of each setting that has one
  std::vector<std::string> keep;
  bool has_calibration = false;
};

struct Settings {
  QuantizeConfig config;
  Spelling spelling;          // the option, variable or key by which the user sets each
  bool names_format = false;  // some source does
  std::vector<std::string> warnings;
};

// Merges the file, the environment and the command line. Errors name what the user wrote.
Result<Settings> read_settings(const SettingsArguments& arguments);

}  // namespace ballast::cli
