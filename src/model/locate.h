#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "format/safetensors/index.h"
#include "source/path/folder.h"

namespace ballast {

// A path of the user, resolved.
struct Place {
  std::string path;              // pinned; see pin_path()
  std::optional<Folder> folder;  // listed; empty for a file
  std::string variant;           // OpenOptions::variant
};
// Also resolves OpenOptions::component.
Result<Place> find_place(const std::string& given, const OpenOptions& options = {});

// The files of a model.
struct Location {
  std::vector<std::string> files;  // weight files, sorted by name; files from an index may not exist
  std::string index_path;          // empty if there is no index
  std::optional<safetensors::ShardIndex> index;
  std::optional<Folder> folder;  // the model directory; empty for a single file
  std::vector<std::string> warnings;
};

Result<Location> locate(Place place, const ReadOptions& options = {});
Result<Location> locate(const std::string& given, const OpenOptions& options = {});

// Locates the files that an inference runtime loads: the directory must have a config.json and weights under one of four names.
Result<Location> locate_pretrained(const std::string& given, const OpenOptions& options = {});

}  // namespace ballast
