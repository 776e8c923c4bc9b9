#pragma once

#include <cstdint>
#include <vector>

#include <ballast/error.h>

#include "calibrate/forward/forward_pass.h"
#include "calibrate/forward/kernels.h"

namespace ballast {

// How a model predicts one token from those before it.
struct TokenScore {
  LogitSums sums;
  float target = 0;  // the logit of the token that follows

  double loss() const { return sums.log_sum() - static_cast<double>(target); }
};

// The same for a model and the original of it.
struct ComparedScores {
  std::vector<TokenScore> model;
  std::vector<TokenScore> original;  // with the gaps to the model; empty without one
};

// Scores every token but the first of each window, in order, after finish(). Logits are computed for a part of the vocabulary and
// some tokens at a time and are never stored. `original` may be null; it has the same tokens and vocabulary.
Result<ComparedScores> score(const ForwardPass& pass, const ForwardPass* original, std::uint64_t memory,
                             const ForwardPass::Tick& tick);

// KL divergence of the model's prediction from the original's.
double divergence(const TokenScore& original, const TokenScore& model);

}  // namespace ballast
