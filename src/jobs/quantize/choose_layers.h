#pragma once

#include "plan/bit_budget.h"
#include "jobs/quantize/layer_coder.h"

namespace ballast {

// What is decided about layers by trying it on them, before anything is written.

// Gives layers that would be worse than they may be more bits, or with fail_fast gives up. What a sample shows to be good enough
// by far is not looked at closer; should it not be, the figures at the end tell.
Result<void> raise_bits(QuantizeWork& work, const LayerCoder& coder, unsigned threads);

// Gives every layer whose bits the user did not name as many as make the most of the size asked for.
class SizeFit {
 public:
  // Tries all bits on a sample of each layer.
  static Result<SizeFit> make(QuantizeWork& work, const LayerCoder& coder);

  Result<void> choose(QuantizeWork& work);
  // After what was chosen has turned out to take so many bytes: whether that is fine. Else something smaller is to be chosen.
  Result<bool> accept(const QuantizeWork& work, std::uint64_t made);

 private:
  static std::unexpected<Error> too_small(const QuantizeWork& work, std::uint64_t least, bool is_known);

  std::uint64_t target_ = 0;        // bytes
  std::uint64_t most_uniform_ = 0;  // what is uniform has the benefit of the doubt, lest a target of just its size gets less
  std::uint64_t fixed_ = 0;         // bytes that no choice changes
  std::int64_t missed_ = 0;         // by how many more than expected were made before
  Allotment chosen_;
  unsigned tries_ = 0;
  std::vector<std::size_t> tensors_;
  std::vector<std::vector<BitChoice>> layers_;  // for each of these
};

// Scales the columns of layers where that lowers the error of their outputs.
Result<void> equalize_layers(QuantizeWork& work, const LayerCoder& coder, unsigned threads);

// That a layer is not good enough, at the bits it has.
std::unexpected<Error> below_minimum(const QuantizeWork& work, const LayerCoder& coder, std::size_t tensor, double cosine);

}  // namespace ballast
