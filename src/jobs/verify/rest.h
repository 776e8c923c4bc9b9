#pragma once

#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/open_options.h>

#include "source/path/folder.h"

namespace ballast {

// The weight files and folders of a model directory that are not part of the model.
struct Rest {
  bool was_checked = false;          // there are weight files, some of which could be checked
  std::vector<std::string> skipped;  // what was not checked, one line for each kind
  std::vector<std::string> defects;  // files that are truncated
};

// Looks at the headers of SafeTensors files and at the ends of ZIP archives, which are enough to find truncated files. Files on
// servers are only named. `weights` are the files of the model.
Result<Rest> check_rest(const Folder& folder, std::span<const std::string> weights, const OpenOptions& options);

}  // namespace ballast
