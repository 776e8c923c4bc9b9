#pragma once

#include <span>
#include <string>

#include <ballast/error.h>
#include <ballast/open_options.h>
#include <ballast/verify.h>

#include "source/path/folder.h"

namespace ballast {

// What a verification does with the content of a directory by itself.
struct Verified {
  std::span<const std::string> weights;  // paths of files
  std::span<const std::string> folders;  // names of folders in it
};

// Adds the weight files and folders of a directory that are not part of the model. Looks at the headers of SafeTensors files and
// at the ends of ZIP archives, which are enough to find truncated files. Files on servers are only named, and a server that does
// not list its files is not asked again.
Result<void> add_rest(const Folder& folder, const Verified& verified, const OpenOptions& options, VerifyReport& report);

}  // namespace ballast
