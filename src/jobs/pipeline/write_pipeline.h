#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ballast/pipeline.h>
#include <ballast/work.h>

namespace ballast {

// A component with weights, and where to write it.
struct ComponentWork {
  const Component& component;
  OpenOptions open;       // with the variant to use
  std::string out;        // the directory to write now
  std::string final_out;  // its path once the pipeline is complete
  std::string record;     // a file for record_of(); empty unless resumable
  WorkOptions work;       // progress names the component

  // The path that a file below `out` has once the pipeline is complete.
  std::string final_path(const std::string& path) const;
};

// Writes `out`, and describes what it did.
using WriteComponent = std::function<Result<ComponentReport>(const ComponentWork&)>;

// A pipeline that is read.
struct PipelineInput {
  std::string root;
  std::vector<Component> components;
  std::vector<OpenOptions> open;  // of each component, with the variant to use
  std::vector<std::string> warnings;
};

// Fails if `path` is not the root of a pipeline, or if no component has the variant.
Result<PipelineInput> open_pipeline(const std::string& path, const OpenOptions& options);

// Whether `path` could not be opened as one model because it is a pipeline.
Result<bool> is_pipeline_instead(const Error& error, const std::string& path, const OpenOptions& open);

struct PipelineWork {
  std::string out;
  bool sync = true;
  bool resume = false;
  bool force = false;  // files of an existing directory that are not part of the output stay
  WorkOptions work;
};

struct WrittenPipeline {
  std::vector<ComponentReport> components;
  std::vector<std::string> not_copied;  // names in the root
  std::vector<std::string> warnings;
};

// Writes a directory of the same structure: calls `write` for each component with weights, and copies everything else. The
// directory appears when it is complete. With `resume`, it is OUT.incomplete until then, and keeps finished components.
Result<WrittenPipeline> write_pipeline(const PipelineInput& input, const PipelineWork& work, const WriteComponent& write);

// Fails if `out` cannot be the output of `input`: it contains the input, or other files without `force`.
Result<void> check_pipeline_output(const PipelineInput& input, const std::string& out, bool force);

// Whether all files of a directory's source are older than the file that a pipeline writes last.
bool is_newer_than_sources(const PipelineInput& input, const std::string& out);

// A text that identifies the files of a folder and their current content.
Result<std::string> describe_folder(const std::string& folder, const OpenOptions& options);

}  // namespace ballast
