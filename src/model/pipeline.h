#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ballast/pipeline.h>

#include "source/path/folder.h"

namespace ballast {

// An entry of model_index.json.
struct PipelineEntry {
  std::string name;
  std::string library;
  std::string class_name;
};

// The entries of a root's model_index.json; none if the folder has no such file, or if it names no component. Fails if a name is
// not that of a subfolder.
Result<std::vector<PipelineEntry>> read_pipeline(const Folder& root);

// Looks into the folder of an entry. Errc::kNotFound if it is missing or has neither weights nor a config.
Result<Component> find_component(const std::string& root, const PipelineEntry& entry, const ReadOptions& options);

// The folder of a component of the pipeline at `root`.
Result<std::string> component_folder(const std::string& root, std::string_view component, const ReadOptions& options);

// The error for a pipeline where one model is expected.
std::unexpected<Error> fail_pipeline(const std::string& root, const std::vector<PipelineEntry>& entries);

}  // namespace ballast
