#pragma once

#include <optional>
#include <string>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// Whether the weights are changes for another model: LoRA as written by PEFT, diffusers or Kohya, and its variants. Returns what
// shows it, such as "tensor 'x.lora_A.weight'".
Result<std::optional<std::string>> find_adapter(const Model& model);

}  // namespace ballast
