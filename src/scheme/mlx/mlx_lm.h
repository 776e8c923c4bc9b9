#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ballast {

// How mlx-lm holds the weights of the architectures that it knows. Facts from mlx_lm.models 0.32.2; see
// docs/formats/mlx-quantized.md.

// What is done with a tensor whose name matches a rule.
enum class Rearrange : std::uint8_t {
  kRename,               // and the rules that follow apply to the new name
  kDrop,                 // mlx-lm does not load it
  kDropExtraLayer,       // the same, if `#` is not below num_hidden_layers: layers that predict further tokens
  kKeep,                 // a module that cannot hold it quantized; the rules that follow apply
  kStack,                // the tensors of all `#`, of 0 and up, become one
  kTranspose,            // the last two axes are exchanged
  kConvolution,          // the same, for [channels, 1, kernel]; what has 1 kernel element or is in that order already stays
  kHalves,               // split along the last axis but one, in `to` and `second`
  kHalvesTransposed,     // split along the last axis, each half transposed
  kAlternate,            // elements of the last axis in turn
  kAlternateTransposed,  // the same, each part transposed
};

// In `from`, `*` is any text and `#` a number. In `to`, each `*` is the text of the next `*` of `from`.
struct MlxRule {
  Rearrange action;
  std::string_view from;
  std::string_view to;
  std::string_view second;
};

// Which architectures have an output layer of their own.
enum class MlxHead : std::uint8_t {
  kByConfig,  // unless the config ties it to the embedding
  kTied,      // none
  kAlways,    // all: if it is tied, its weights are those of the embedding, stored again
};

struct MlxArchitecture {
  std::string_view model_type;
  std::string_view refusal;  // not empty: why mlx-lm cannot be given its weights
  std::span<const MlxRule> rules;
  MlxHead head = MlxHead::kByConfig;
  std::string_view output_layer = "lm_head.weight";          // as mlx-lm names it
  std::string_view embedding = "model.embed_tokens.weight";  // likewise
  std::string_view tie_key = "tie_word_embeddings";          // in the config
};

// Null for an architecture that mlx-lm does not have.
const MlxArchitecture* find_mlx_architecture(std::string_view model_type);

}  // namespace ballast
