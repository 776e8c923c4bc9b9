#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// The dimensions and settings in a model's config.json. Names in snake_case, in camelCase, as in GPT-2 (`n_embd`) or inside a
// nested `text_config` are all understood. Fields without a default are empty if the file does not set them.
struct ModelConfig {
  std::string model_type;
  std::vector<std::string> architectures;

  std::optional<std::uint64_t> vocab_size;
  std::optional<std::uint64_t> hidden_size;
  std::optional<std::uint64_t> intermediate_size;
  std::optional<std::uint64_t> num_hidden_layers;
  std::optional<std::uint64_t> num_attention_heads;
  std::optional<std::uint64_t> num_key_value_heads;  // num_attention_heads when absent
  std::optional<std::uint64_t> head_dim;             // hidden_size / num_attention_heads when absent
  std::uint64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool quantized = false;  // it has a `quantization` or `quantization_config` section

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;
  std::optional<std::int64_t> pad_token_id;

  std::string json;  // the whole document, as standard JSON
};

// Parses the text of a config.json. Accepts the bare NaN and Infinity that Python's json module writes.
Result<ModelConfig> parse_config(std::string_view text);

// The numbers of a config, with defaults, under their standard names (`hidden_size`, not `n_embd`).
using ConfigNumber = std::variant<std::uint64_t, double, bool>;
std::vector<std::pair<std::string_view, ConfigNumber>> usual_numbers(const ModelConfig& config);

}  // namespace ballast
