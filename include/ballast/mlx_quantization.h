#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// How codes, scales and biases encode values.
enum class QuantizationMode : std::uint8_t {
  kAffine,  // code * scale + bias
  kMxfp4,   // E2M1 codes, one power-of-two scale per 32 codes
  kMxfp8,   // E4M3 codes, one power-of-two scale per 32 codes
  kNvfp4,   // E2M1 codes, one E4M3 scale per 16 codes
};
std::string_view name(QuantizationMode mode);  // affine, mxfp4, mxfp8, nvfp4

struct TensorQuantization {
  unsigned bits = 4;         // per code: 2, 3, 4, 5, 6 or 8 if affine, else fixed by the mode
  unsigned group_size = 64;  // columns per scale: 32, 64, 128 or 256 if affine, else fixed by the mode
  QuantizationMode mode = QuantizationMode::kAffine;

  bool operator==(const TensorQuantization&) const = default;
};

// How the weights of an MLX model directory are quantized. For the settings of quantize_model(), see QuantizeConfig.
struct MlxQuantization {
  TensorQuantization defaults;
  // Keys are names of tensors or layers, or globs; an empty value means not quantized.
  std::map<std::string, std::optional<TensorQuantization>, std::less<>> per_tensor;
  std::vector<std::string> patterns;  // the keys of `per_tensor` that are globs, in file order

  // How a tensor is quantized; empty if it is not. Looks up, in this order: the name; the name without .weight, .scales or
  // .biases; both with a leading `language_model.` removed, or added if there is none; the first glob that matches either of the
  // first two; `defaults`.
  std::optional<TensorQuantization> find(std::string_view tensor) const;

  bool operator==(const MlxQuantization&) const = default;
};

// Parses the text of a quantization_config.json. Checks every number.
Result<MlxQuantization> parse_mlx_quantization(std::string_view text);

// Parses the section `quantization`, or else `quantization_config`, of the text of a config.json; empty if it has neither. A
// section written by another quantizer is Errc::kUnsupported.
Result<std::optional<MlxQuantization>> parse_mlx_quantization_section(std::string_view text);

// Reads the directory's quantization_config.json, or else its config.json; empty if neither describes a quantization.
Result<std::optional<MlxQuantization>> read_mlx_quantization(const std::string& directory);

}  // namespace ballast
