// Parses its input as a config.json. If it is accepted, parsing its own JSON must give the same.

#include <cstdint>
#include <string_view>
#include <tuple>

#include <ballast/architecture.h>
#include <ballast/config.h>

#include "check.h"

namespace ballast {
namespace {

auto fields(const ModelConfig& c) {
  return std::tie(c.model_type, c.architectures, c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers,
                  c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.max_position_embeddings, c.rms_norm_eps,
                  c.rope_theta, c.tie_word_embeddings, c.attention_bias, c.mlp_bias, c.quantized, c.bos_token_id, c.eos_token_ids,
                  c.pad_token_id, c.json);
}

void check_config(std::string_view text) {
  const auto config = parse_config(text);
  if (!config) return check(!config.error().message.empty());
  const auto again = parse_config(config->json);
  check(again && fields(*again) == fields(*config));

  constexpr std::uint64_t kQuick = 200;  // more layers only take longer
  if (config->num_hidden_layers.value_or(0) > kQuick) return;
  const auto report = check_architecture(*config, {});
  check(!report || !*report || (*report)->missing.size() == (*report)->expected_tensors);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::check_config({reinterpret_cast<const char*>(data), size});
  return 0;
}
