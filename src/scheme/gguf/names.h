#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast::gguf {

// The names that Hugging Face's models have for a matrix of a language model that GGUF calls `name`, such as
// "model.layers.0.self_attn.q_proj.weight" for "blk.0.attn_q.weight". GGUF stacks experts: `expert` is the index of one of them.
// Several, because mixtures of experts, and models with a vision part, differ. Empty for a name that is not known.
std::vector<std::string> matrix_names(std::string_view name);
std::vector<std::string> expert_names(std::string_view name, std::size_t expert);

}  // namespace ballast::gguf
