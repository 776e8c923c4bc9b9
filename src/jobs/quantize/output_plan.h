#pragma once

#include <string>

#include <ballast/model.h>
#include <ballast/quantize.h>

#include "jobs/quantize/layer_coder.h"

namespace ballast {

// An output with layers as the plan has them, for the first attempt.
Result<OutputPlan> describe_output(const LayerCoder& coder, const Plan& plan, const QuantizeOptions& options, Modality modality);

// The same output with layers of another plan. `attempt` counts from 1: what one attempt wrote cannot be resumed by the next.
OutputPlan with_layers(OutputPlan output, const LayerCoder& coder, const Plan& plan, unsigned attempt);

// Whether a directory holds what the work would make. An output that is older than what it was made of was made of something
// else; one that is damaged is made again.
bool is_finished(const std::string& directory, const OutputPlan& output, const LayerCoder& coder);

// The names of the folders in a directory, with commas between.
std::string folders_in(const std::string& directory);

}  // namespace ballast
