#pragma once

#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/open_options.h>
#include <ballast/work.h>

namespace ballast {

struct MetadataEdit {
  Metadata set;
  std::vector<std::string> unset;  // keys to remove before `set` is applied; a missing key is an error
};

enum class MetadataChange {
  kNone,      // the metadata already had these values
  kInPlace,   // bytes of the header were overwritten
  kRewritten  // the file was replaced by a new one
};

// Changes only the metadata of a SafeTensors file. Overwrites bytes of the header if the new text fits and all changed bytes lie
// in one page, so that the write is atomic. Otherwise writes a new file and renames it over the old one.
Result<MetadataChange> edit_metadata(const std::string& path, const MetadataEdit& edit, const OpenOptions& options = {},
                                     const WorkOptions& work = {});

}  // namespace ballast
