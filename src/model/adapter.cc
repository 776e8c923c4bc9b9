#include "model/adapter.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "model/identity.h"
#include "model/layer_names.h"
#include "model/state.h"

namespace ballast {
namespace {

constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
// Parts of the names of LoRA, DoRA, LoHa and LoKr.
constexpr std::array<std::string_view, 12> kAdapterParts{
    "lora_A",     "lora_B",           "lora_down", "lora_up",         "lora.down",
    "lora.up",    "hada_w",           "lokr_w",    "lora_embedding_", "lora_magnitude_vector",
    "dora_scale", "lora_linear_layer"};

bool is_change(const TensorInfo& tensor) { return has_any(tensor.name, kAdapterParts); }

}  // namespace

Result<std::optional<std::string>> find_adapter(const Model& model) {
  const std::string stem = stem_of_files(ModelAccess::stored_files(model));
  if (std::ranges::find(kAdapterStems, stem) != kAdapterStems.end()) return stem + std::string(kSafetensorsSuffix);
  const auto change = std::ranges::find_if(model.tensors(), is_change);
  if (change == model.tensors().end()) return std::nullopt;
  const bool is_all = std::ranges::none_of(
      model.tensors(), [](const TensorInfo& tensor) { return tensor.shape.size() > 1 && !is_change(tensor); });
  if (is_all) return fmt::format("tensor {}", quote(change->name));
  const Folder* const folder = ModelAccess::folder(model);
  const bool has_config = folder != nullptr && TRY(folder->has(kAdapterConfigFile)) && !TRY(folder->has(kConfigFile));
  return has_config ? std::optional<std::string>(kAdapterConfigFile) : std::nullopt;
}

}  // namespace ballast
