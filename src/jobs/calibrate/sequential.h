#pragma once

#include <memory>
#include <string>
#include <utility>

#include <ballast/model.h>
#include <ballast/quantize_config.h>
#include <ballast/work.h>

#include "calibrate/forward/decoder_layer.h"
#include "plan/layer_plan.h"

namespace ballast {

// Quantizes the layers of a model one after the other, in memory, so that later layers are calibrated with the inputs that they
// will get. Borrows the model.
class SequentialQuantizer {
 public:
  static Result<SequentialQuantizer> make(const Model& model, const QuantizeConfig& config, const WorkOptions& work);

  // Replaces the weights that the config quantizes by their values after quantizing, with the statistics in a file.
  Result<void> quantize(DecoderLayer& layer, const std::string& statistics) const;

 private:
  SequentialQuantizer(const Model& model, QuantizeConfig config, Plan plan, WorkOptions work)
      : model_(&model), config_(std::move(config)), plan_(std::move(plan)), work_(std::move(work)) {}

  const Model* model_;
  QuantizeConfig config_;  // without what names tensors of the output
  Plan plan_;
  WorkOptions work_;
};

}  // namespace ballast
