#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/tokens.h>
#include <ballast/work.h>

namespace ballast {

// How the predictions of a model differ from those of the original that it was made from. KL divergences are in nats.
struct EvaluationAgainst {
  double perplexity = 0;             // of the original
  double perplexity_ratio = 0;       // of the model to the original
  double kl_mean = 0;                // of the model's prediction from the original's, over all tokens
  double kl_stderr = 0;              // standard error of kl_mean
  double kl_p99 = 0;                 // 99 % of the tokens have at most this
  double top1_agreement = 0;         // share of tokens for which both find the same next token most likely
  std::vector<double> kl;            // of each scored token, in order
  std::vector<double> layer_errors;  // after each layer, relative RMS difference of the hidden states
  std::uint64_t worst_layer = 0;     // the layer after which they differ most
};

struct Evaluation {
  double perplexity = 0;         // exp of the mean loss
  double perplexity_stderr = 0;  // its standard error, from the losses of all tokens
  double loss = 0;               // mean negative log likelihood of the next token
  std::uint64_t tokens = 0;      // scored: all but the first of each window
  std::uint64_t windows = 0;
  std::uint64_t length = 0;  // of a window
  std::optional<EvaluationAgainst> against;
};

// Runs a language model over windows of tokens, layer by layer in bounded memory, and scores its predictions. `original` may be
// null; it must have the same vocabulary, hidden size and number of layers. Quantized weights must be decoded, preferably to F32:
// decode(weights, DType::kF32). The default memory limit is 1 GiB, or two layers in F32 if these are larger. An architecture that
// Ballast cannot run, and a missing OpenBLAS, are kUnsupported. Results may differ in the last digits between machines.
Result<Evaluation> evaluate_model(const Model& model, const TokenWindows& tokens, const Model* original = nullptr,
                                  const WorkOptions& work = {});

}  // namespace ballast
