#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "format/safetensors/index.h"
#include "source/path/path.h"

namespace ballast {

// What a path given by the user stands for.
struct Location {
  std::vector<std::string> files;  // of weights, in name order; some may be missing when an index names them
  std::string index_path;          // empty without an index
  std::optional<safetensors::ShardIndex> index;
  std::string directory;    // that the files belong to; empty for a single file
  std::string config_path;  // empty for a single file, and where there is none
  std::vector<std::string> warnings;
};

Result<Location> locate(const std::string& given, const ReadOptions& options = {});

// What an inference runtime takes from a directory: it must have a config, and weights under one of four names.
Result<Location> locate_pretrained(const std::string& given, const ReadOptions& options = {});

}  // namespace ballast
