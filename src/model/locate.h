#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "format/safetensors/index.h"
#include "source/path/folder.h"

namespace ballast {

// Where a path given by the user leads.
struct Place {
  std::string path;              // from now on it means the same files: see pin_path()
  std::optional<Folder> folder;  // listed; empty for a file
};
Result<Place> find_place(const std::string& given, const ReadOptions& options = {});

// The files of a model.
struct Location {
  std::vector<std::string> files;  // of weights, in name order; some may be missing when an index names them
  std::string index_path;          // empty without an index
  std::optional<safetensors::ShardIndex> index;
  std::optional<Folder> folder;  // that the files belong to; empty for a single file
  std::vector<std::string> warnings;
};

Result<Location> locate(Place place, const ReadOptions& options = {});
Result<Location> locate(const std::string& given, const ReadOptions& options = {});

// What an inference runtime takes from a directory: it must have a config, and weights under one of four names.
Result<Location> locate_pretrained(const std::string& given, const ReadOptions& options = {});

}  // namespace ballast
