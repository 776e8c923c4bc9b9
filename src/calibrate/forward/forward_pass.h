#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/tokens.h>
#include <ballast/work.h>

#include "calibrate/forward/decoder_layer.h"
#include "calibrate/forward/hidden_states.h"
#include "calibrate/forward/linear.h"
#include "calibrate/forward/text_model.h"

namespace ballast {

// How a forward pass divides its memory.
struct PassMemory {
  std::uint64_t hidden;       // of hidden states; more are in a file
  std::uint64_t layer;        // of the weights of a layer; of a larger one, experts are read when they are used
  std::uint64_t activations;  // of the windows that go through a layer at once
};

// Runs a language model over windows of tokens, layer by layer: all windows go through one layer before the next is read. Borrows
// the model and the tokens.
class ForwardPass {
 public:
  // Checks the architecture and the tokens.
  static Result<ForwardPass> make(const Model& model, const TokenWindows& tokens, const Blas& blas, const PassMemory& memory,
                                  unsigned threads);

  const TextModel& text() const { return text_; }
  const LinearReader& reader() const { return reader_; }
  const ParallelProducts& products() const { return products_; }
  const TokenWindows& tokens() const { return tokens_; }
  const HiddenStates& hidden() const { return hidden_; }
  HiddenStates& hidden() { return hidden_; }
  std::uint64_t layer_count() const { return text_.layers.size(); }

  // Called after some windows have passed a layer, with the share of them that has; false cancels the work.
  using Tick = std::function<bool(double share)>;

  // Looks up the embeddings.
  Result<void> embed();
  Result<DecoderLayer> load_layer(std::size_t layer) const;
  // All windows go through the layer. Without `keep`, the hidden states before it stay.
  Result<void> run(const DecoderLayer& layer, std::size_t index, const SeeInputs& see, bool keep, const Tick& tick);
  // Applies the norm after the last layer.
  Result<void> finish();
  // All of it.
  Result<void> run_all();

 private:
  ForwardPass(TextModel text, const Model& model, const TokenWindows& tokens, const ParallelProducts& products,
              HiddenStates hidden, const PassMemory& memory);

  std::uint64_t windows_at_once(std::size_t layer) const;

  TextModel text_;
  LinearReader reader_;
  const TokenWindows& tokens_;
  ParallelProducts products_;
  HiddenStates hidden_;
  PassMemory memory_;
  RopeTable rope_;
  RopeTable local_rope_;
};

}  // namespace ballast
