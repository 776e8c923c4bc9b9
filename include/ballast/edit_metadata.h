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
  std::vector<std::string> unset;  // before `set` is applied; a key that is not there is an error
};

enum class MetadataChange {
  kNone,      // it was so already
  kInPlace,   // some bytes of the header were overwritten
  kRewritten  // the file was replaced by a new one
};

// Changes the metadata of a SafeTensors file and nothing else. Where the new text fits into the header, and the bytes that change
// lie in one page, so that they reach the file all or none, they are overwritten; else a new file takes the place of the old one.
Result<MetadataChange> edit_metadata(const std::string& path, const MetadataEdit& edit, const OpenOptions& options = {},
                                     const WorkOptions& work = {});

}  // namespace ballast
