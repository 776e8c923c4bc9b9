#include <ballast/config.h>

#include <initializer_list>

#include "base/fail.h"
#include "base/json.h"
#include "base/try.h"

namespace ballast {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// Finds a setting under any of its names, first in `text_config`, then at the root. Records the first error.
class ConfigReader {
 public:
  explicit ConfigReader(object root) : root_(root) {
    object text;
    if (root["text_config"].get(text) == simdjson::SUCCESS) text_ = text;
  }

  using Names = std::initializer_list<std::string_view>;

  // Leaves `out` unchanged if the value is missing or null.
  template <class T>
  void read(T& out, Names names) {
    if (const auto value = find(names)) assign(out, *value, *names.begin());
  }

  void read_inside(double& out, std::string_view section, std::string_view name) {
    for (const object& scope : scopes()) {
      element value;
      if (scope[section][name].get(value) == simdjson::SUCCESS && !value.is_null()) return assign(out, value, name);
    }
  }

  bool has(Names names) const { return find(names).has_value(); }

  std::optional<Error> error;

 private:
  std::vector<object> scopes() const { return text_ ? std::vector{*text_, root_} : std::vector{root_}; }

  std::optional<element> find(Names names) const {
    for (const object& scope : scopes()) {
      for (const std::string_view name : names) {
        element value;
        if (scope[name].get(value) == simdjson::SUCCESS && !value.is_null()) return value;
      }
    }
    return std::nullopt;
  }

  void reject(std::string_view name, element value, std::string_view expected) {
    if (error) return;
    error = Error{.code = Errc::kCorrupt, .message = fmt::format("{} is {}, expected {}", name, describe(value), expected)};
  }

  void assign(std::uint64_t& out, element value, std::string_view name) {
    const auto integer = whole_number(value);
    if (!integer || *integer < 0) return reject(name, value, "a whole number");
    out = static_cast<std::uint64_t>(*integer);
  }
  void assign(std::optional<std::uint64_t>& out, element value, std::string_view name) {
    std::uint64_t found = 0;
    assign(found, value, name);
    out = found;
  }
  void assign(std::optional<std::int64_t>& out, element value, std::string_view name) {
    out = whole_number(value);
    if (!out) reject(name, value, "a whole number");
  }
  void assign(double& out, element value, std::string_view name) {
    if (value.get(out) != simdjson::SUCCESS) reject(name, value, "a number");
  }
  void assign(bool& out, element value, std::string_view name) {
    if (value.get(out) != simdjson::SUCCESS) reject(name, value, "true or false");
  }
  void assign(std::string& out, element value, std::string_view name) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return reject(name, value, "a string");
    out = text;
  }
  void assign(std::vector<std::string>& out, element value, std::string_view name) {
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS) return reject(name, value, "a list of strings");
    for (const element item : list) assign(out.emplace_back(), item, name);
  }
  // One id or a list of ids.
  void assign(std::vector<std::int64_t>& out, element value, std::string_view name) {
    simdjson::dom::array list;
    const bool is_list = value.get(list) == simdjson::SUCCESS;
    const auto add = [&](element item) {
      const auto id = whole_number(item);
      if (!id) return reject(name, value, "a whole number or a list of whole numbers");
      out.push_back(*id);
    };
    if (!is_list) return add(value);
    for (const element item : list) add(item);
  }

  object root_;
  std::optional<object> text_;
};

void derive(ModelConfig& config) {
  if (!config.num_key_value_heads) config.num_key_value_heads = config.num_attention_heads;
  const bool divides = config.hidden_size && config.num_attention_heads && *config.num_attention_heads != 0;
  if (!config.head_dim && divides) config.head_dim = *config.hidden_size / *config.num_attention_heads;
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view text) {
  simdjson::dom::parser parser;
  const auto document = TRY(parse_json(parser, text));
  object root;
  if (document.get(root) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "the root is not an object");

  ModelConfig config;
  ConfigReader reader(root);
  const auto model_type = root["model_type"];
  if (std::string_view type; model_type.get(type) == simdjson::SUCCESS) config.model_type = type;
  reader.read(config.architectures, {"architectures"});
  reader.read(config.vocab_size, {"vocab_size", "vocabSize", "n_vocab"});
  reader.read(config.hidden_size, {"hidden_size", "hiddenSize", "n_embd", "d_model"});
  reader.read(config.intermediate_size, {"intermediate_size", "intermediateSize", "n_inner"});
  reader.read(config.num_hidden_layers, {"num_hidden_layers", "numHiddenLayers", "num_layers", "numLayers", "n_layer"});
  reader.read(config.num_attention_heads, {"num_attention_heads", "numAttentionHeads", "num_heads", "numHeads", "n_head"});
  reader.read(config.num_key_value_heads, {"num_key_value_heads", "numKeyValueHeads", "num_kv_heads", "numKvHeads"});
  reader.read(config.head_dim, {"head_dim", "headDim"});
  reader.read(config.max_position_embeddings, {"max_position_embeddings", "maxPositionEmbeddings", "n_positions", "n_ctx"});
  reader.read(config.rms_norm_eps, {"rms_norm_eps", "rmsNormEps"});
  reader.read_inside(config.rope_theta, "rope_parameters", "rope_theta");
  reader.read(config.rope_theta, {"rope_theta", "ropeTheta"});
  reader.read(config.tie_word_embeddings, {"tie_word_embeddings", "tieWordEmbeddings"});
  reader.read(config.attention_bias, {"attention_bias", "attentionBias"});
  reader.read(config.mlp_bias, {"mlp_bias", "mlpBias"});
  reader.read(config.bos_token_id, {"bos_token_id", "bosTokenId"});
  reader.read(config.eos_token_ids, {"eos_token_id", "eosTokenId"});
  reader.read(config.pad_token_id, {"pad_token_id", "padTokenId"});
  config.quantized = reader.has({"quantization", "quantization_config"});
  if (reader.error) return std::unexpected(std::move(*reader.error));

  derive(config);
  config.json = simdjson::minify(root);
  return config;
}

std::vector<std::pair<std::string_view, ConfigNumber>> usual_numbers(const ModelConfig& config) {
  std::vector<std::pair<std::string_view, ConfigNumber>> numbers;
  const auto add = [&](std::string_view name, const std::optional<std::uint64_t>& number) {
    if (number) numbers.emplace_back(name, *number);
  };
  add("vocab_size", config.vocab_size);
  add("hidden_size", config.hidden_size);
  add("intermediate_size", config.intermediate_size);
  add("num_hidden_layers", config.num_hidden_layers);
  add("num_attention_heads", config.num_attention_heads);
  add("num_key_value_heads", config.num_key_value_heads);
  add("head_dim", config.head_dim);
  add("max_position_embeddings", config.max_position_embeddings);
  numbers.emplace_back("rms_norm_eps", config.rms_norm_eps);
  numbers.emplace_back("rope_theta", config.rope_theta);
  numbers.emplace_back("tie_word_embeddings", config.tie_word_embeddings);
  return numbers;
}

}  // namespace ballast
