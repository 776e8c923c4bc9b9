#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "jobs/pipeline/write_pipeline.h"

namespace ballast {

Result<std::set<std::string>> list_names(const std::string& folder, const OpenOptions& options);

// What an existing directory has beside the files that the output replaces: `names` at its top, and those of the components.
Result<std::vector<std::string>> find_others(const PipelineInput& input, const std::string& out,
                                             std::span<const std::string> names);

// Links a file or a folder, or copies it where there are no links. Nothing if `to` exists.
Result<void> keep(const std::string& from, const std::string& to);

}  // namespace ballast
