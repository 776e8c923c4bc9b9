#include "scheme/gguf/names.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

namespace ballast::gguf {
namespace {

constexpr std::string_view kBlock = "blk.";

// A name in a layer, or in an expert of a layer, and what Hugging Face's models call it.
struct Matrix {
  std::string_view gguf;
  std::string_view hf;
};

constexpr auto kMatrices = std::to_array<Matrix>({
    {.gguf = "attn_q.weight", .hf = "self_attn.q_proj.weight"},
    {.gguf = "attn_k.weight", .hf = "self_attn.k_proj.weight"},
    {.gguf = "attn_v.weight", .hf = "self_attn.v_proj.weight"},
    {.gguf = "attn_output.weight", .hf = "self_attn.o_proj.weight"},
    {.gguf = "ffn_gate.weight", .hf = "mlp.gate_proj.weight"},
    {.gguf = "ffn_up.weight", .hf = "mlp.up_proj.weight"},
    {.gguf = "ffn_down.weight", .hf = "mlp.down_proj.weight"},
    {.gguf = "ffn_gate_inp.weight", .hf = "mlp.gate.weight"},
    {.gguf = "ffn_gate_inp.weight", .hf = "block_sparse_moe.gate.weight"},
});

// {} is the expert.
constexpr auto kExperts = std::to_array<Matrix>({
    {.gguf = "ffn_gate_exps.weight", .hf = "mlp.experts.{}.gate_proj.weight"},
    {.gguf = "ffn_up_exps.weight", .hf = "mlp.experts.{}.up_proj.weight"},
    {.gguf = "ffn_down_exps.weight", .hf = "mlp.experts.{}.down_proj.weight"},
    {.gguf = "ffn_gate_exps.weight", .hf = "block_sparse_moe.experts.{}.w1.weight"},
    {.gguf = "ffn_up_exps.weight", .hf = "block_sparse_moe.experts.{}.w3.weight"},
    {.gguf = "ffn_down_exps.weight", .hf = "block_sparse_moe.experts.{}.w2.weight"},
});

// Of models with only a text part, and of those with a vision part.
constexpr std::array<std::string_view, 3> kPrefixes{"model.", "model.language_model.", "language_model.model."};

struct InLayer {
  std::string_view layer;  // its number
  std::string_view rest;
};

// Splits "blk.12.attn_q.weight".
std::optional<InLayer> in_layer(std::string_view name) {
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  const std::string_view layer = name.substr(0, dot);
  if (!std::ranges::all_of(layer, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return InLayer{.layer = layer, .rest = name.substr(dot + 1)};
}

}  // namespace

std::vector<std::string> matrix_names(std::string_view name) {
  if (name == "output.weight") return {"lm_head.weight", "language_model.lm_head.weight"};
  std::vector<std::string> names;
  if (name == "token_embd.weight") {
    for (const std::string_view prefix : kPrefixes) names.push_back(fmt::format("{}embed_tokens.weight", prefix));
  }
  const auto found = in_layer(name);
  if (!found) return names;
  for (const Matrix& matrix : kMatrices) {
    if (matrix.gguf != found->rest) continue;
    for (const std::string_view prefix : kPrefixes)
      names.push_back(fmt::format("{}layers.{}.{}", prefix, found->layer, matrix.hf));
  }
  return names;
}

std::vector<std::string> expert_names(std::string_view name, std::size_t expert) {
  std::vector<std::string> names;
  const auto found = in_layer(name);
  if (!found) return names;
  for (const Matrix& matrix : kExperts) {
    if (matrix.gguf != found->rest) continue;
    const std::string rest = fmt::format(fmt::runtime(matrix.hf), expert);
    for (const std::string_view prefix : kPrefixes) names.push_back(fmt::format("{}layers.{}.{}", prefix, found->layer, rest));
  }
  return names;
}

}  // namespace ballast::gguf
