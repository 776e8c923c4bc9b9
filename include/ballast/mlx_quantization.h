#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// How codes, scales and biases stand for numbers.
enum class QuantizationMode : std::uint8_t {
  kAffine,  // code * scale + bias
  kMxfp4,   // E2M1 codes, a power of two for 32 of them
  kMxfp8,   // E4M3 codes, a power of two for 32 of them
  kNvfp4,   // E2M1 codes, an E4M3 number for 16 of them
};
std::string_view name(QuantizationMode mode);  // affine, mxfp4, mxfp8, nvfp4

struct TensorQuantization {
  unsigned bits = 4;         // of a code: 2, 3, 4, 5, 6 or 8 if affine, else what the mode has
  unsigned group_size = 64;  // columns to a scale: 32, 64, 128 or 256 if affine, else what the mode has
  QuantizationMode mode = QuantizationMode::kAffine;

  bool operator==(const TensorQuantization&) const = default;
};

// How the weights of a directory in MLX's format are quantized. For settings to quantize with, see QuantizeConfig.
struct MlxQuantization {
  TensorQuantization defaults;
  // By the name of a tensor or layer, or by glob; empty for what is not quantized.
  std::map<std::string, std::optional<TensorQuantization>, std::less<>> per_tensor;
  std::vector<std::string> patterns;  // which of these names are globs, in the order of the file

  // How a tensor is quantized, empty if it is not. Looks for its name, its name less .weight, .scales or .biases, both without a
  // leading `language_model.` or else with one; then for the first glob that matches one of the first two; then takes the
  // defaults.
  std::optional<TensorQuantization> find(std::string_view tensor) const;

  bool operator==(const MlxQuantization&) const = default;
};

// The text of a quantization_config.json. Every number is checked.
Result<MlxQuantization> parse_mlx_quantization(std::string_view text);

// The section `quantization`, else `quantization_config`, of the text of a config.json; empty if it has neither. Sections of
// other quantizers are kUnsupported.
Result<std::optional<MlxQuantization>> parse_mlx_quantization_section(std::string_view text);

// From the directory's quantization_config.json, else from its config.json; empty if neither says anything.
Result<std::optional<MlxQuantization>> read_mlx_quantization(const std::string& directory);

}  // namespace ballast
