#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "scheme/declared.h"

namespace ballast {

enum class ModelOptCodes : std::uint8_t { kTensor, kChannel, kBlock, kMxfp8, kNvfp4, kAwq };

struct ModelOptAlgorithm {
  std::string_view name;  // quant_algo
  ModelOptCodes codes;
};

// The algorithms that Ballast reads. The first one with some codes is their usual name.
std::span<const ModelOptAlgorithm> modelopt_algorithms();

// How modules are quantized.
struct ModelOptSettings {
  const ModelOptAlgorithm* algorithm = nullptr;  // null if the config does not tell
  std::uint64_t group_size = 0;                  // 0 if the config does not tell
};

// The section of config.json, or the quantization of hf_quant_config.json.
struct ModelOptConfig {
  std::string place;  // for messages
  ModelOptSettings all;
  std::map<std::string, ModelOptSettings, std::less<>> by_module;  // of MIXED_PRECISION
  std::set<std::string, std::less<>> excluded;                     // exact names
  std::vector<std::string> excluded_globs;
  bool quantizes_weights = false;

  static Result<ModelOptConfig> parse(const Declared& declared);

  // Those of the module, or of what contains it.
  ModelOptSettings settings_of(std::string_view module) const;
  // What excludes the module; empty if nothing does.
  std::string_view excluding(std::string_view module) const;
};

}  // namespace ballast
