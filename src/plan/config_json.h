#pragma once

#include <string>

#include <ballast/quantize_config.h>

namespace ballast {

// The settings that outputs depend on, as an object of JSON for metadata.json. Threads and memory are left out: no byte depends
// on them.
std::string settings_json(const QuantizeConfig& config);

}  // namespace ballast
