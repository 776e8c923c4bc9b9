#pragma once

#include <string>
#include <vector>

#include <ballast/verify.h>

#include "model/pipeline.h"

namespace ballast {

// Verifies every component of the pipeline at `root`. A component that is missing or cannot be located is a defect.
Result<VerifyReport> verify_pipeline(const std::string& root, const std::vector<PipelineEntry>& entries,
                                     const VerifyOptions& options);

}  // namespace ballast
