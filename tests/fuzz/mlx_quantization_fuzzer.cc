// Reads its input as a quantization_config.json and as a config.json. What is accepted must say the same when it is written out
// and read again, and every override must be found.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <ballast/mlx_quantization.h>

#include "base/json.h"
#include "check.h"

namespace ballast {
namespace {

void append_settings(const TensorQuantization& tensor, std::string& out) {
  out += fmt::format(R"("bits":{},"group_size":{},"mode":"{}")", tensor.bits, tensor.group_size, name(tensor.mode));
}

void append_override(const MlxQuantization& config, const std::string& key, std::string& out) {
  append_json_string(key, out);
  out += ':';
  if (const auto& tensor = config.per_tensor.at(key)) {
    append_settings(*tensor, out += '{');
    out += "},";
  } else {
    out += "false,";
  }
}

// Patterns first, for they have an order.
std::string to_json(const MlxQuantization& config) {
  std::string out = "{";
  append_settings(config.defaults, out);
  out += R"(,"per_tensor":{)";
  for (const std::string& pattern : config.patterns) append_override(config, pattern, out);
  for (const auto& [key, tensor] : config.per_tensor) {
    if (std::ranges::find(config.patterns, key) == config.patterns.end()) append_override(config, key, out);
  }
  if (out.back() == ',') out.pop_back();
  return out += "}}";
}

void check_settings(const TensorQuantization& tensor) {
  check(tensor.bits >= 2 && tensor.bits <= 8 && tensor.bits != 7);
  check(tensor.group_size >= 16 && tensor.group_size <= 256 && (tensor.group_size & (tensor.group_size - 1)) == 0);
}

void check_config(const Result<MlxQuantization>& config) {
  if (!config) return check(!config.error().message.empty());
  check_settings(config->defaults);
  for (const auto& [key, tensor] : config->per_tensor) {
    if (tensor) check_settings(*tensor);
    check(config->find(key) == tensor);
  }
  (void)config->find("language_model.model.layers.0.mlp.up_proj.weight");
  const auto again = parse_mlx_quantization(to_json(*config));
  check(again && *again == *config);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ballast::check_config(ballast::parse_mlx_quantization(text));
  const auto section = ballast::parse_mlx_quantization_section(text);
  if (!section) {
    ballast::check(!section.error().message.empty());
  } else if (*section) {
    ballast::check_config(**section);
  }
  return 0;
}
