#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/open_options.h>

namespace ballast {

// A subfolder that the model_index.json of a diffusers pipeline names. Its path can be opened like any model directory.
struct Component {
  std::string name;                   // the subfolder: unet
  std::string library;                // diffusers
  std::string class_name;             // UNet2DConditionModel
  std::string path;                   // of the subfolder
  bool has_weights = false;           // false for a tokenizer, a scheduler and the like
  bool is_denoiser = false;           // transformer, unet, prior, controlnet: what quantize_pipeline() quantizes
  std::vector<std::string> variants;  // of its weights, such as fp16; plain weights are the empty string
};

// The components of a pipeline, in the order of model_index.json; none if the path is not the root of a pipeline, or if
// `options.component` is set. Lists the subfolders, one of which may be missing: that is Errc::kNotFound.
Result<std::vector<Component>> list_components(const std::string& path, const OpenOptions& options = {});

// What a job did with a component.
enum class ComponentAction { kConverted, kQuantized, kUnquantized, kDequantized, kCopied };
std::string_view name(ComponentAction action);  // converted, quantized, unquantized, dequantized, copied

struct ComponentReport {
  std::string name;
  std::string class_name;
  ComponentAction action = ComponentAction::kCopied;  // kCopied: it has no weights
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  // of its weight files
};

}  // namespace ballast
