#pragma once

#include <string>

#include <ballast/quantize_config.h>

namespace ballast {

// The settings that outputs depend on, as a JSON object for metadata.json: all but threads and memory.
std::string settings_json(const QuantizeConfig& config);

}  // namespace ballast
