#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"
#include "scheme/modelopt/config.h"
#include "scheme/modelopt/layers.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "modelopt";

// Fails if both say how all weights are quantized, and differ.
Result<void> check_agreement(const ModelOptConfig& a, const ModelOptConfig& b) {
  const ModelOptAlgorithm* const first = a.all.algorithm;
  const ModelOptAlgorithm* const second = b.all.algorithm;
  const auto differ = [&](std::string_view key, const auto& x, const auto& y) {
    return fail(Errc::kCorrupt, "{}: {} is {}, but {} has {}; remove the section that does not belong to these weights", a.place,
                key, x, b.place, y);
  };
  if (first != nullptr && second != nullptr && first->codes != second->codes) {
    return differ("quant_algo", first->name, second->name);
  }
  const bool has_sizes = a.all.group_size != 0 && b.all.group_size != 0;
  if (has_sizes && a.all.group_size != b.all.group_size) return differ("group_size", a.all.group_size, b.all.group_size);
  return {};
}

// The config of the first section that says how weights are quantized, otherwise of the first section. Empty if the first one is
// of another quantizer.
Result<std::optional<ModelOptConfig>> read_config(std::span<const Declared> declared) {
  std::optional<ModelOptConfig> first;
  std::optional<ModelOptConfig> found;
  for (const Declared& section : declared) {
    if (!section.method.starts_with(kName)) break;  // modelopt_fp4 and the like, too
    ModelOptConfig config = TRY(ModelOptConfig::parse(section));
    if (found && config.quantizes_weights) TRY(check_agreement(*found, config));
    if (!found && config.quantizes_weights) found = config;
    if (!first) first = std::move(config);
  }
  return found ? found : first;
}

// ComfyUI has tensors of the same names, in another order.
bool is_comfy(const Model& model) {
  const auto is_marked = [](const ModelFile& file) { return file.metadata.contains("_quantization_metadata"); };
  return std::ranges::any_of(model.files(), is_marked) || std::ranges::any_of(model.tensors(), [](const TensorInfo& tensor) {
           return tensor.name.ends_with("comfy_quant") || tensor.name.ends_with("scaled_fp8");
         });
}

Result<std::optional<Layers>> refuse_lone_file(const Model& model) {
  for (const TensorInfo& tensor : model.tensors()) {
    const TensorInfo* weight = find_sibling(model, tensor.name, "weight_scale_2", "weight");
    if (weight == nullptr) weight = find_sibling(model, tensor.name, "_weight_scale_2", "");
    if (weight == nullptr || weight->dtype != DType::kU8 || is_comfy(model)) continue;
    return fail_tensor(
        model, *weight, Errc::kUnsupported,
        "is quantized by ModelOpt, but there is no quantization_config that tells how; open the directory with its "
        "config.json or hf_quant_config.json");
  }
  return std::nullopt;
}

class ModelOptScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    if (declared.empty()) return refuse_lone_file(model);
    const auto config = TRY(read_config(declared));
    if (!config) return std::nullopt;
    Layers found = TRY(find_modelopt_layers(model, *config));
    if (found.layers.empty() && config->quantizes_weights) {
      return fail(Errc::kCorrupt, "{}: {} has a quant_algo, but no weight is quantized; remove the section if that is right",
                  escape(model.path()), config->place);
    }
    return found;
  }
};

}  // namespace

const LayerScheme& modelopt_scheme() {
  static const ModelOptScheme scheme;
  return scheme;
}

}  // namespace ballast
