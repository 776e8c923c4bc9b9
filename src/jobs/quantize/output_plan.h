#pragma once

#include <string>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize.h>

#include "jobs/quantize/layer_coder.h"

namespace ballast {

// The output of a plan, for the first attempt.
Result<OutputPlan> describe_output(const LayerCoder& coder, const Plan& plan, const QuantizeOptions& options, Modality modality);

// The same output with layers of another plan. `attempt` counts from 1: what one attempt wrote cannot be resumed by the next.
OutputPlan with_layers(OutputPlan output, const LayerCoder& coder, const Plan& plan, unsigned attempt);

// Whether a directory is already the output of this work: complete, readable and newer than all inputs.
bool is_finished(const std::string& directory, const OutputPlan& output, const LayerCoder& coder);

// The names of the files of the output, without those of weights.
std::vector<std::string> names_of(const OutputPlan& output, QuantizeFormat format);

}  // namespace ballast
