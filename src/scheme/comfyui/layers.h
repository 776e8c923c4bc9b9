#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// How ComfyUI names what describes quantized layers.
inline constexpr std::string_view kComfyMetadata = "_quantization_metadata";  // a key of the header's metadata
inline constexpr std::string_view kComfyQuant = ".comfy_quant";               // a tensor of each layer
inline constexpr std::string_view kComfyScaledFp8 = "scaled_fp8";  // a tensor of each model, after its prefix: the old form

// A layer that a file describes as quantized.
struct ComfyLayer {
  std::string name;  // of the module, as in the names of its tensors
  std::string format;
  std::string place;                                  // for messages, where the format is given
  std::optional<std::int64_t> group_size;             // not checked
  std::optional<std::array<std::uint64_t, 2>> shape;  // without padding; not checked
  const TensorInfo* description = nullptr;            // the tensor that gives the format, if one does
};

// All layers that the metadata or tensors describe, by name. kCorrupt if two descriptions of a layer differ or the weight of a
// layer does not exist; kUnsupported for settings that may change values in a way that is not known.
Result<std::vector<ComfyLayer>> find_comfy_layers(const Model& model);

}  // namespace ballast
