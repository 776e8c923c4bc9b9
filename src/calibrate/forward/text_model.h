#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

enum class Activation : std::uint8_t { kSilu, kGeluTanh };

// Rotary position embedding: the angle of pair j at position p is p · frequencies[j].
struct Rope {
  std::vector<float> frequencies;  // head_dim / 2
};

// A mixture of experts in place of the MLP.
struct Experts {
  std::uint64_t count = 0;
  std::uint64_t per_token = 0;
  std::uint64_t intermediate = 0;
  bool normalize = true;   // the weights of the chosen experts have sum 1
  std::string module;      // of the router and the experts in a layer: "mlp"
  bool old_names = false;  // w1, w3 and w2 for gate, up and down
};

struct TextLayer {
  std::uint64_t window = 0;  // positions that a token attends to, itself included; 0: all before it
  bool local_rope = false;   // uses TextModel::local_rope
  bool has_experts = false;
};

// What the forward pass needs to know about a language model: a stack of decoder layers as in Llama. Computed once from the
// config and the names of the tensors; sizes are not 0 and fit the 32-bit numbers of BLAS.
struct TextModel {
  std::string model_type;
  std::string prefix;  // of the names: "model."
  std::string head;    // the tensor of the output layer; the embedding if tied
  std::uint64_t vocab = 0;
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  float epsilon = 0;
  float attention_scale = 0;
  float embedding_scale = 1;
  Activation activation = Activation::kSilu;
  bool norms_add_one = false;  // weights of norms are stored minus 1
  bool norms_after = false;    // attention and MLP also have a norm after them
  bool query_key_norms = false;
  Rope rope;
  Rope local_rope;
  std::optional<Experts> experts;
  std::vector<TextLayer> layers;

  // kUnsupported for another architecture, which the message names with the list of those that work.
  static Result<TextModel> make(const Model& model);

  std::uint64_t query() const { return heads * head_dim; }
  std::uint64_t key_value() const { return kv_heads * head_dim; }
  std::string layer_prefix(std::size_t layer) const;
};

}  // namespace ballast
