#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ballast/pipeline.h>

#include "command.h"

namespace ballast::cli {

// The components of a pipeline, after opening `path` as one model failed with `error`; none if that has another reason.
Result<std::vector<Component>> components_instead(const Error& error, const std::string& path, const OpenOptions& options);

// Whether `path` is the root of a pipeline; false if it cannot be read.
bool is_pipeline(const std::string& path, const OpenOptions& options);

struct PipelineView {
  std::string path;
  bool tensors = false;
  bool json = false;
  OpenOptions open;
};

// inspect for a whole pipeline.
Exit inspect_pipeline(const PipelineView& view, const std::vector<Component>& components);

// What a job did with each component: as JSON, and as a note about those that are not quantized.
nlohmann::ordered_json components_json(std::span<const ComponentReport> components);
void note_unquantized(std::span<const ComponentReport> components);

}  // namespace ballast::cli
