#pragma once

#include <cstdint>
#include <string>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/quantize_config.h>
#include <ballast/tokens.h>
#include <ballast/work.h>

namespace ballast {

struct CalibrateOptions {
  bool hessian = false;  // also record E[x·xᵀ], which GPTQ needs
  // Quantizes each layer as quantize_model() would, in memory, so that the inputs of a layer come from quantized layers. Null:
  // they come from the layers as they are.
  const QuantizeConfig* sequential = nullptr;
  bool resume = false;  // keep finished layers in `path`.incomplete if the work is interrupted, and resume from them
  bool sync = true;     // flush the output to disk before returning
  WorkOptions work;     // the default memory limit is 1 GiB
};

struct CalibrateReport {
  std::uint64_t weights = 0;  // with statistics
  std::uint64_t tokens = 0;
  std::uint64_t windows = 0;
  std::uint64_t layers = 0;
  std::uint64_t resumed_layers = 0;  // finished by an earlier run
  std::uint64_t bytes = 0;           // size of the file
};

// Runs a language model over windows of tokens and writes statistics of the inputs of its linear layers to a SafeTensors file at
// `path`, see docs/formats/timecalib.md. The requirements and the memory are those of evaluate_model(), with the Hessians of one
// layer. Statistics may differ in the last digits between machines.
Result<CalibrateReport> calibrate_model(const Model& model, const TokenWindows& tokens, const std::string& path,
                                        const CalibrateOptions& options = {});

}  // namespace ballast
