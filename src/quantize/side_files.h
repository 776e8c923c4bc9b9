#pragma once

#include <string_view>

namespace ballast {

// Files beside the weights of a directory in MLX's format, which MLX does not look at: see docs/formats/mlx-quantized.md.
inline constexpr std::string_view kTimeAwareFile = "timeaware.safetensors";
inline constexpr std::string_view kTimeAwareFormat = "timeaware.v1";
inline constexpr std::string_view kEqualizationFile = "equalization.safetensors";
inline constexpr std::string_view kEqualizationFormat = "equalization.v1";
inline constexpr std::string_view kEqualizationMember =
    "equalization_file";  // of config.json: without the file, weights are wrong

}  // namespace ballast
