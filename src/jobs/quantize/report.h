#pragma once

#include <span>
#include <vector>

#include <ballast/quantize.h>

#include "jobs/quantize/layer_coder.h"

namespace ballast {

// An output that is in its place, with what was measured on the way. Borrows.
struct FinishedOutput {
  const LayerCoder& coder;
  const OutputPlan& output;
  const Plan& planned;                // before bits were raised
  std::span<const QualitySums> sums;  // of each block
  std::vector<QuantizedWriter::File> files;
  bool has_time_bias;  // one that is not 0
  bool has_skipped;    // blocks of an earlier run
};

QuantizeReport make_report(const FinishedOutput& finished);

QuantizePlan describe_plan(const LayerCoder& coder, const OutputPlan& output, Modality modality);

// Fills in what follows from the layers: the figures of all together, bits per weight, and whether all are good enough.
void summarize_layers(QuantizeReport& report, double min_accuracy);

}  // namespace ballast
