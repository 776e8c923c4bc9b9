#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

// What a tensor of an adapter is.
enum class LoraPart : std::uint8_t {
  kDown,           // [rank, in], the matrix A
  kUp,             // [out, rank], the matrix B
  kEmbeddingDown,  // [rank, rows]
  kEmbeddingUp,    // [columns, rank]
  kAlpha,
  kWhole,    // replaces a tensor of the model
  kRefused,  // part of a change that cannot be merged
};

// The name of an adapter's tensor, as PEFT, diffusers and Kohya write them.
struct LoraName {
  LoraPart part = LoraPart::kRefused;
  std::string module;    // of the model: model.layers.0.mlp.up_proj; for kWhole the name of the tensor
  std::string role;      // the part of a pipeline that the name starts with: unet, lora_te1; empty if there is none
  bool is_flat = false;  // `module` has underscores for dots, as Kohya writes them
  bool is_peft = false;  // starts with base_model.model
  std::string why;       // of kRefused: "DoRA"
};

LoraName parse_lora_name(std::string_view tensor);

// Whether tensors with this role are for a component of a pipeline.
bool is_role_of(std::string_view role, std::string_view component);

// Whether components of this name have a role, such as unet.
bool has_role(std::string_view component);

}  // namespace ballast
