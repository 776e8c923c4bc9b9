#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ballast/quantize.h>

#include "jobs/quantize/choose_layers.h"
#include "jobs/quantize/layer_coder.h"

namespace ballast {

// A committed output with its measurements. Borrows.
struct FinishedOutput {
  const LayerCoder& coder;
  const OutputPlan& output;
  const Plan& planned;                // before bits were raised
  std::span<const QualitySums> sums;  // of each block
  std::vector<QuantizedWriter::File> files;
  bool has_time_bias;                       // one that is not 0
  bool has_skipped;                         // blocks of an earlier run
  std::optional<SizeExpectation> expected;  // with a target size
};

QuantizeReport make_report(const FinishedOutput& finished);

QuantizePlan describe_plan(const LayerCoder& coder, const OutputPlan& output, Modality modality,
                           const std::optional<SizeExpectation>& expected);

// Values that are not quantized, and their bytes.
struct Unquantized {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
};

// Computes the totals from the layers and the rest: metrics, bits per weight, and whether all layers pass.
void summarize_layers(QuantizeReport& report, const Unquantized& others, double min_accuracy);

}  // namespace ballast
