#include "jobs/lora/names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace ballast {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.";

struct LoraEnding {
  std::string_view ending;
  LoraPart part;
};
constexpr std::array kEndings{
    LoraEnding{.ending = ".lora_A.weight", .part = LoraPart::kDown},
    LoraEnding{.ending = ".lora_B.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = ".lora_A.default.weight", .part = LoraPart::kDown},
    LoraEnding{.ending = ".lora_B.default.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = ".lora_down.weight", .part = LoraPart::kDown},
    LoraEnding{.ending = ".lora_up.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = ".lora.down.weight", .part = LoraPart::kDown},
    LoraEnding{.ending = ".lora.up.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = ".lora_linear_layer.down.weight", .part = LoraPart::kDown},
    LoraEnding{.ending = ".lora_linear_layer.up.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = "_lora.down.weight", .part = LoraPart::kDown},  // of attention processors
    LoraEnding{.ending = "_lora.up.weight", .part = LoraPart::kUp},
    LoraEnding{.ending = ".lora_embedding_A", .part = LoraPart::kEmbeddingDown},
    LoraEnding{.ending = ".lora_embedding_B", .part = LoraPart::kEmbeddingUp},
    LoraEnding{.ending = ".alpha", .part = LoraPart::kAlpha},
};

// Parts of names, and what they are parts of.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kRefused{{
    {"lora_magnitude_vector", "DoRA"},
    {"dora_scale", "DoRA"},
    {"hada_", "LoHa"},
    {"lokr_", "LoKr"},
    {"lora_mid", "a Tucker decomposition"},
    {"lora_E", "AdaLoRA"},
    {"ranknum", "AdaLoRA"},
    {"trainable_tokens", "trainable tokens"},
    {"oft_", "OFT"},
    {"vera_lambda", "VeRA"},
    {"ia3_l", "IA3"},
    {".lora_B.bias", "a bias"},
    {".lora_up.bias", "a bias"},
    {".lora_a", "an adapter of mlx-lm"},
    {".lora_b", "an adapter of mlx-lm"},
    {".diff", "a full difference"},
    {"lora", "an unknown part of an adapter"},
}};

// The first part of names, and the components of pipelines that they are for; those without are the component's own name.
struct LoraRole {
  std::string_view role;
  std::array<std::string_view, 4> components;
};
constexpr std::array<std::string_view, 4> kDenoisers{"unet", "transformer", "transformer_2", "prior"};
constexpr std::array kRoles{
    LoraRole{.role = "unet", .components = {"unet"}},
    LoraRole{.role = "transformer", .components = {"transformer"}},
    LoraRole{.role = "transformer_2", .components = {"transformer_2"}},
    LoraRole{.role = "prior", .components = {"prior"}},
    LoraRole{.role = "text_encoder", .components = {"text_encoder"}},
    LoraRole{.role = "text_encoder_2", .components = {"text_encoder_2"}},
    LoraRole{.role = "text_encoder_3", .components = {"text_encoder_3"}},
    LoraRole{.role = "diffusion_model", .components = kDenoisers},
    LoraRole{.role = "lora_unet", .components = kDenoisers},
    LoraRole{.role = "lora_transformer", .components = kDenoisers},
    LoraRole{.role = "lycoris", .components = kDenoisers},
    LoraRole{.role = "lora_te", .components = {"text_encoder"}},
    LoraRole{.role = "lora_te1", .components = {"text_encoder"}},
    LoraRole{.role = "lora_te2", .components = {"text_encoder_2"}},
    LoraRole{.role = "lora_te3", .components = {"text_encoder_3"}},
};

bool is_flat_role(std::string_view role) { return role.starts_with("lora_") || role == "lycoris"; }

// Takes the role, and the `separator` behind it, from the front of the name.
std::string take_role(std::string& name, bool is_flat) {
  const char separator = is_flat ? '_' : '.';
  for (const LoraRole& known : kRoles) {
    const std::size_t size = known.role.size();
    if (is_flat_role(known.role) != is_flat || name.size() <= size + 1 || name[size] != separator) continue;
    if (!name.starts_with(known.role)) continue;
    name.erase(0, size + 1);
    return std::string(known.role);
  }
  return {};
}

void erase_part(std::string& name, std::string_view part) {
  if (const std::size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
}

// attn1.processor.to_out of old versions of diffusers is attn1.to_out.0.
void name_processor(std::string& module) {
  constexpr std::string_view kProcessor = ".processor";
  if (!module.contains(kProcessor)) return;
  erase_part(module, kProcessor);
  if (module.ends_with(".to_out")) module += ".0";
}

LoraName refused(std::string_view why) { return {.part = LoraPart::kRefused, .why = std::string(why)}; }

}  // namespace

LoraName parse_lora_name(std::string_view tensor) {
  const auto ending = std::ranges::find_if(kEndings, [&](const LoraEnding& each) { return tensor.ends_with(each.ending); });
  LoraName name{.is_peft = tensor.starts_with(kPeftPrefix)};
  if (name.is_peft) tensor.remove_prefix(kPeftPrefix.size());
  if (ending != kEndings.end()) {
    if (tensor.size() <= ending->ending.size()) return refused("a tensor without a module");
    name.part = ending->part;
    name.module = tensor.substr(0, tensor.size() - ending->ending.size());
  } else {
    const auto why = std::ranges::find_if(kRefused, [&](const auto& each) { return tensor.contains(each.first); });
    if (why != kRefused.end()) return refused(why->second);
    const bool is_whole = name.is_peft && (tensor.ends_with(".weight") || tensor.ends_with(".bias"));
    if (!is_whole) return refused("not a part of an adapter");
    name.part = LoraPart::kWhole;
    name.module = tensor;
    erase_part(name.module, ".modules_to_save.default");
    erase_part(name.module, ".modules_to_save");
  }
  erase_part(name.module, ".base_layer");
  name.is_flat = !name.module.contains('.') && (name.module.starts_with("lora_") || name.module.starts_with("lycoris_"));
  if (!name.is_peft) name.role = take_role(name.module, name.is_flat);
  if (name.is_flat && name.role.empty()) return refused("a module with an unknown prefix");
  name_processor(name.module);
  return name;
}

bool is_role_of(std::string_view role, std::string_view component) {
  if (role.empty()) return true;
  const auto known = std::ranges::find(kRoles, role, &LoraRole::role);
  return known != kRoles.end() && std::ranges::find(known->components, component) != known->components.end();
}

bool has_role(std::string_view component) {
  return !component.empty() && std::ranges::any_of(kRoles, [&](const LoraRole& role) {
    return std::ranges::find(role.components, component) != role.components.end();
  });
}

}  // namespace ballast
