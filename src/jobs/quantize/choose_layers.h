#pragma once

#include <map>
#include <memory>

#include <ballast/quantize.h>

#include "jobs/quantize/layer_coder.h"
#include "plan/bit_budget.h"

namespace ballast {

// Decisions about layers that need measurements, before anything is written. Each step turns one plan into another.

// Gives more bits to layers below min_accuracy, or fails with fail_fast. Layers that pass by a wide margin in a sample are not
// measured in full; if the sample misled, the final metrics show it.
Result<Plan> raise_bits(const Plan& plan, const LayerCoder& coder, unsigned threads);

struct SizeExpectation {
  struct Tensor {
    double error;
    double weight;
  };
  SizeFitReport report;
  std::map<std::size_t, Tensor> tensors;  // by index
};

// Chooses the bits of all layers whose bits the user did not set, to fit a target size with the least error.
class SizeFit {
 public:
  // Tries all bits on a sample of each layer.
  static Result<SizeFit> make(const Plan& plan, const LayerCoder& coder, const OutputPlan& output);

  Result<Plan> choose(const Plan& plan);
  // Of the last choice.
  SizeExpectation expected() const;
  // Whether the written size fits. If not, call choose() again for a smaller choice.
  Result<bool> accept(std::uint64_t made);

 private:
  std::unexpected<Error> too_small(std::uint64_t least, bool is_known) const;

  bool sizes_are_exact_ = false;
  std::uint64_t target_ = 0;        // bytes
  std::uint64_t most_uniform_ = 0;  // limit for a uniform choice, so that a target of exactly its size is met with it
  std::uint64_t fixed_ = 0;         // bytes that do not depend on the choice
  std::int64_t missed_ = 0;         // bytes by which the last attempt exceeded the estimate
  Allotment chosen_;
  unsigned tries_ = 0;
  std::vector<std::size_t> tensors_;
  std::vector<double> weights_;                 // of each in the total error
  bool of_outputs_ = false;                     // errors of some
  std::vector<std::vector<BitChoice>> layers_;  // for each of these
};

// Scales the columns of layers where that lowers the error of their outputs.
Result<Plan> equalize_layers(const Plan& plan, const LayerCoder& coder, unsigned threads);

// The error for a layer below min_accuracy.
std::unexpected<Error> below_minimum(const LayerCoder& coder, const WeightLayout& layer, double cosine);

}  // namespace ballast
