#pragma once

#include <ballast/convert_model.h>

#include "jobs/pipeline/write_pipeline.h"

namespace ballast {

// Converts a component, or reports what an earlier run has converted with the same files and options.
Result<ConvertReport> convert_component(const ComponentWork& work, const ConvertOptions& options);

// Writes a component as it is, with its shards.
Result<ConvertReport> copy_component(const ComponentWork& work, const SinkOptions& sink);

// Adds the result for a component to that of the pipeline.
void add_component(ConvertReport& all, const ComponentWork& work, ConvertReport own);

// The part of a pipeline's report that describes a component.
ComponentReport component_report(const ComponentWork& work, ComponentAction action, std::uint64_t tensors, std::uint64_t bytes);
ComponentReport component_report(const ComponentWork& work, ComponentAction action, const ConvertReport& own);

// "unet/conv_in.weight": names of tensors and files are unique within a component.
std::string name_in(const Component& component, const std::string& name);
std::vector<std::string> names_in(const Component& component, std::vector<std::string> names);

// "text_encoder: message"
std::vector<std::string> named_warnings(const ComponentWork& work, std::vector<std::string> warnings);

}  // namespace ballast
