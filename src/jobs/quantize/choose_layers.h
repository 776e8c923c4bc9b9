#pragma once

#include <memory>

#include "jobs/quantize/layer_coder.h"
#include "plan/bit_budget.h"

namespace ballast {

// What is decided about layers by trying it on them, before anything is written. Each step turns one plan into another.

// Gives layers that would be below min_accuracy more bits, or with fail_fast gives up. What a sample shows to be good enough by
// far is not measured; should it not be, the metrics at the end say so.
Result<Plan> raise_bits(const Plan& plan, const LayerCoder& coder, unsigned threads);

// Gives every layer whose bits the user did not name as many as make the most of the size asked for.
class SizeFit {
 public:
  // Tries all bits on a sample of each layer. `output` is what of the plan for the output no choice changes.
  static Result<SizeFit> make(const Plan& plan, const LayerCoder& coder, const OutputPlan& output);

  Result<Plan> choose(const Plan& plan);
  // Given the bytes that the choice took: whether they are few enough. Else something smaller is to be chosen.
  Result<bool> accept(std::uint64_t made);

 private:
  std::unexpected<Error> too_small(std::uint64_t least, bool is_known) const;

  bool sizes_are_exact_ = false;
  std::uint64_t target_ = 0;        // bytes
  std::uint64_t most_uniform_ = 0;  // a uniform choice may be this large: a target of just its size must not get fewer bits
  std::uint64_t fixed_ = 0;         // bytes that no choice changes
  std::int64_t missed_ = 0;         // by how many more than expected were made before
  Allotment chosen_;
  unsigned tries_ = 0;
  std::vector<std::size_t> tensors_;
  std::vector<std::vector<BitChoice>> layers_;  // for each of these
};

// Scales the columns of layers where that lowers the error of their outputs.
Result<Plan> equalize_layers(const Plan& plan, const LayerCoder& coder, unsigned threads);

// That a layer is not good enough, at the bits it has.
std::unexpected<Error> below_minimum(const LayerCoder& coder, const WeightLayout& layer, double cosine);

}  // namespace ballast
