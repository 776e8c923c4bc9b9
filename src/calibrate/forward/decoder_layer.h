#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "calibrate/forward/attention.h"
#include "calibrate/forward/hidden_states.h"
#include "calibrate/forward/linear.h"
#include "calibrate/forward/text_model.h"

namespace ballast {

// Inputs of linear layers: a row for each token.
struct LinearInputs {
  const float* values;
  std::uint64_t tokens;
  std::uint64_t columns;
  const float* importance;  // of each token; null: all are 1
};

// Sees the inputs of linear layers. Several weights may share them. Called from one thread.
using SeeInputs = std::function<void(std::span<const std::string> weights, const LinearInputs& inputs)>;

struct GatedMlp {
  Linear gate;
  Linear up;
  Linear down;
};

// Activations of some windows in a layer. They are used again for the next ones, as fresh memory takes time.
struct LayerBuffers {
  std::vector<float> inputs;  // of linear layers; the result of the attention
  std::vector<float> queries;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> gate;
  std::vector<float> up;
  std::vector<float> outputs;  // of the MLP
  // How much an error in a token's activations counts, 1 on average: an equal share for the token itself, and the attention that
  // it receives, as tokens see others through it. The first token of a window may count for hundreds.
  std::vector<float> importance;
};

// One decoder layer with its weights as F32.
class DecoderLayer {
 public:
  // Reads all weights but those of experts, unless `keeps_experts`: else each of them is read whenever it is used.
  static Result<DecoderLayer> load(const TextModel& text, std::size_t index, const LinearReader& reader, bool keeps_experts);
  // Bytes of the weights of a layer, all experts included.
  static std::uint64_t bytes(const TextModel& text, std::size_t index);
  // Bytes that run() needs for each token, and for any number of tokens.
  static std::uint64_t bytes_for_token(const TextModel& text);
  static std::uint64_t bytes_to_run(const TextModel& text);

  // Replaces hidden states by those after the layer. `hidden` has whole windows of `length` tokens.
  Result<void> run(const ParallelProducts& products, const RopeTable& rope, std::span<float> hidden, std::uint64_t length,
                   LayerBuffers& buffers, const SeeInputs& see) const;

  // Calls change(linear) for every linear layer, experts included. Those that are not kept are then read from a temporary file.
  Result<void> change_linears(const std::function<Result<void>(Linear&)>& change);

 private:
  DecoderLayer(const TextModel& text, std::size_t index, const LinearReader& reader)
      : text_(&text), index_(index), reader_(&reader) {}

  Result<void> load_attention(const std::string& prefix);
  Result<void> load_experts(const std::string& prefix, bool keeps_experts);
  Result<GatedMlp> load_expert(std::uint64_t expert) const;
  Result<void> change_experts(const std::function<Result<void>(Linear&)>& change);
  Result<std::vector<float>> load_norm(const std::string& tensor, std::uint64_t size) const;

  Result<void> run_attention(const ParallelProducts& products, const RopeTable& rope, std::span<float> hidden,
                             std::uint64_t length, LayerBuffers& buffers, const SeeInputs& see) const;
  Result<void> run_mlp(const ParallelProducts& products, std::span<float> hidden, LayerBuffers& buffers,
                       const SeeInputs& see) const;
  // Adds the outputs of the experts of each token to buffers.outputs.
  Result<void> run_experts(const ParallelProducts& products, LayerBuffers& buffers, const SeeInputs& see) const;
  // hidden += outputs, after a norm if the model has one there.
  void add(const ParallelProducts& products, std::span<float> outputs, const std::vector<float>& norm,
           std::span<float> hidden) const;
  void normalize(const ParallelProducts& products, const float* in, std::uint64_t rows, const std::vector<float>& norm,
                 float* out) const;

  const TextModel* text_;
  std::size_t index_;
  const LinearReader* reader_;
  std::vector<float> attention_norm_;
  std::vector<float> attention_after_norm_;
  std::vector<float> mlp_norm_;
  std::vector<float> mlp_after_norm_;
  std::vector<float> query_norm_;
  std::vector<float> key_norm_;
  Linear query_;
  Linear key_;
  Linear value_;
  Linear output_;
  GatedMlp mlp_;
  Linear router_;
  std::vector<GatedMlp> experts_;                // empty if they are not kept
  std::optional<HiddenStates> changed_experts_;  // one after the other
};

}  // namespace ballast
