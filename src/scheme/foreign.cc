#include "scheme/foreign.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <ballast/mlx_quantization.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "scheme/declared.h"
#include "scheme/layer_reader.h"
#include "source/uri.h"

namespace ballast {
namespace {

using Found = std::optional<ForeignQuantization>;

constexpr std::string_view kUnknown = "unknown";

// What must accompany a tensor for its name to count.
enum class Needs : std::uint8_t {
  kNothing,
  kSibling,
  kCodes,  // a sibling of another dtype that may hold codes: plain models use the name, too, and casts give both one dtype
};

struct NamePattern {
  std::string_view suffix;
  Needs needs;
  std::string_view sibling;  // its name has this in place of the suffix
  std::string_view scheme;
};

// The first pattern that matches any tensor wins, so names that only one scheme has come first.
constexpr std::array kNames{
    NamePattern{.suffix = "comfy_quant", .needs = Needs::kNothing, .sibling = {}, .scheme = "comfyui"},
    NamePattern{.suffix = "scaled_fp8", .needs = Needs::kNothing, .sibling = {}, .scheme = "comfyui"},
    NamePattern{.suffix = "scale_weight", .needs = Needs::kSibling, .sibling = "weight", .scheme = "comfyui"},
    NamePattern{.suffix = "weight_packed", .needs = Needs::kNothing, .sibling = {}, .scheme = "compressed-tensors"},
    NamePattern{.suffix = ".weight_zero_point", .needs = Needs::kSibling, .sibling = ".weight", .scheme = "compressed-tensors"},
    NamePattern{.suffix = "._weight_qdata", .needs = Needs::kNothing, .sibling = {}, .scheme = "torchao"},
    NamePattern{.suffix = "weight_scale_2", .needs = Needs::kSibling, .sibling = "weight", .scheme = "modelopt"},
    NamePattern{.suffix = "_weight_scale_2", .needs = Needs::kSibling, .sibling = "", .scheme = "modelopt"},  // fused experts
    NamePattern{.suffix = "pre_quant_scale", .needs = Needs::kSibling, .sibling = "weight", .scheme = "modelopt"},
    NamePattern{.suffix = ".absmax", .needs = Needs::kSibling, .sibling = "", .scheme = "bitsandbytes"},
    NamePattern{.suffix = "SCB", .needs = Needs::kSibling, .sibling = "weight", .scheme = "bitsandbytes"},
    NamePattern{.suffix = "_blocks", .needs = Needs::kSibling, .sibling = "_scales", .scheme = "mxfp4"},
    NamePattern{.suffix = ".blocks", .needs = Needs::kSibling, .sibling = ".scales", .scheme = "mxfp4"},
    NamePattern{.suffix = "g_idx", .needs = Needs::kSibling, .sibling = "qweight", .scheme = "gptq"},
    NamePattern{.suffix = "qzeros", .needs = Needs::kSibling, .sibling = "qweight", .scheme = "awq"},
    NamePattern{
        .suffix = ".qzeros", .needs = Needs::kNothing, .sibling = {}, .scheme = kUnknown},  // its codes are in another shard
    NamePattern{.suffix = "qbiases", .needs = Needs::kSibling, .sibling = "scales", .scheme = "metal"},
    NamePattern{.suffix = "_scale_inv", .needs = Needs::kSibling, .sibling = "", .scheme = "fp8"},
    NamePattern{.suffix = ".weight_scale_inv", .needs = Needs::kNothing, .sibling = {}, .scheme = "fp8"},
    NamePattern{.suffix = "qscale_weight", .needs = Needs::kSibling, .sibling = "weight", .scheme = "fp8"},  // Mistral
    NamePattern{.suffix = ".W_q", .needs = Needs::kSibling, .sibling = ".scale", .scheme = "hqq"},
    NamePattern{.suffix = "._data", .needs = Needs::kSibling, .sibling = "._scale", .scheme = "quanto"},
    NamePattern{.suffix = ".q_weight", .needs = Needs::kSibling, .sibling = ".q_scale", .scheme = "exl2"},
    NamePattern{.suffix = ".trellis", .needs = Needs::kSibling, .sibling = ".suh", .scheme = "exl3"},
    NamePattern{.suffix = ".codebooks", .needs = Needs::kSibling, .sibling = ".codes", .scheme = "aqlm"},
    NamePattern{.suffix = "weight_scale", .needs = Needs::kSibling, .sibling = "weight", .scheme = kUnknown},
    NamePattern{.suffix = ".weight_scale", .needs = Needs::kNothing, .sibling = {}, .scheme = kUnknown},
    NamePattern{.suffix = ".weight_scale_2", .needs = Needs::kNothing, .sibling = {}, .scheme = "modelopt"},
    NamePattern{.suffix = ".pre_quant_scale", .needs = Needs::kNothing, .sibling = {}, .scheme = "modelopt"},
    NamePattern{.suffix = ".scale_input", .needs = Needs::kNothing, .sibling = {}, .scheme = "comfyui"},
    NamePattern{.suffix = ".SCB", .needs = Needs::kNothing, .sibling = {}, .scheme = "bitsandbytes"},
    NamePattern{.suffix = ".weight.absmax", .needs = Needs::kNothing, .sibling = {}, .scheme = "bitsandbytes"},
    NamePattern{.suffix = ".weight.quant_map", .needs = Needs::kNothing, .sibling = {}, .scheme = "bitsandbytes"},
    NamePattern{.suffix = ".weight.nested_absmax", .needs = Needs::kNothing, .sibling = {}, .scheme = "bitsandbytes"},
    NamePattern{.suffix = ".weight.nested_quant_map", .needs = Needs::kNothing, .sibling = {}, .scheme = "bitsandbytes"},
    NamePattern{.suffix = "_weight_scale", .needs = Needs::kSibling, .sibling = "", .scheme = kUnknown},  // fused experts
    NamePattern{.suffix = "weight_scales", .needs = Needs::kSibling, .sibling = "weight", .scheme = kUnknown},
    NamePattern{.suffix = "qweight", .needs = Needs::kSibling, .sibling = "scales", .scheme = kUnknown},
    NamePattern{.suffix = "_scale", .needs = Needs::kCodes, .sibling = "", .scheme = kUnknown},
    NamePattern{.suffix = ".scale", .needs = Needs::kCodes, .sibling = ".weight", .scheme = kUnknown},  // DeepSeek-V4
};

bool may_hold_codes(const TensorInfo& tensor) { return tensor.shape.size() >= 2 && may_hold_codes(tensor.dtype); }

// The quantizer that a section names.
ForeignQuantization described(const Declared& declared) {
  constexpr std::size_t kLongest = 40;
  const bool is_name = !declared.method.empty() && declared.method.size() <= kLongest;
  return {.scheme = is_name ? escape(declared.method) : std::string(kUnknown), .evidence = declared.evidence};
}

Found find_in_metadata(const Model& model) {
  constexpr std::string_view kKey = "_quantization_metadata";
  for (const ModelFile& file : model.files()) {
    if (!file.metadata.contains(kKey)) continue;
    return ForeignQuantization{.scheme = "comfyui",
                               .evidence = fmt::format("{}: metadata '{}'", escape(file_name(file.path)), kKey)};
  }
  return std::nullopt;
}

Found match(const Model& model, const TensorInfo& tensor, const NamePattern& pattern) {
  if (!tensor.name.ends_with(pattern.suffix)) return std::nullopt;
  std::string evidence = fmt::format("tensor {}", quote(tensor.name));
  if (pattern.needs != Needs::kNothing) {
    const std::string_view base = tensor.name.substr(0, tensor.name.size() - pattern.suffix.size());
    const TensorInfo* const sibling = model.find(std::string(base).append(pattern.sibling));
    if (sibling == nullptr) return std::nullopt;
    const bool has_codes = may_hold_codes(*sibling) && sibling->dtype != tensor.dtype;
    if (pattern.needs == Needs::kCodes && !has_codes) return std::nullopt;
    evidence += fmt::format(" beside {}", quote(sibling->name));
  }
  return ForeignQuantization{.scheme = std::string(pattern.scheme), .evidence = std::move(evidence)};
}

Found find_in_names(const Model& model, const std::set<const TensorInfo*>& claimed) {
  for (const NamePattern& pattern : kNames) {
    for (const TensorInfo& tensor : model.tensors()) {
      if (claimed.contains(&tensor)) continue;
      if (auto found = match(model, tensor, pattern)) return found;
    }
  }
  return std::nullopt;
}

// MLX's own section wins over one that the original model left in the config.
bool is_mlx(const Model& model) {
  if (!model.config()) return false;
  const auto section = parse_mlx_quantization_section(model.config()->json);
  return section && section->has_value();
}

}  // namespace

Result<std::optional<ForeignQuantization>> find_foreign(const Model& model) {
  if (!is_mlx(model)) {
    const std::vector<Declared> declared = TRY(find_declared(model));
    if (!declared.empty()) return described(declared.front());
  }
  if (auto found = find_in_metadata(model)) return found;
  return find_in_names(model, {});
}

Result<void> refuse_foreign(const Model& model) {
  const auto found = TRY(find_foreign(model));
  if (!found) return {};
  const std::string how = found->scheme == kUnknown ? "in an unknown way" : "as " + found->scheme;
  return fail(Errc::kUnsupported,
              "{}: weights are quantized {} ({}), which Ballast cannot decode yet; dequantize them with the tool that made them "
              "first",
              escape(model.path()), how, found->evidence);
}

Result<void> refuse_leftovers(const Model& model, const std::set<const TensorInfo*>& claimed) {
  const auto found = find_in_names(model, claimed);
  if (!found) return {};
  return fail(Errc::kUnsupported,
              "{}: {} looks like part of a quantized weight, but belongs to none; convert without --dtype copies it",
              escape(model.path()), found->evidence);
}

Result<void> refuse_codes(const Model& model) {
  if (ModelAccess::decoded(model)) return {};
  if (const auto found = TRY(find_layers(model)); found && !found->layers.empty()) {
    return fail(Errc::kUnsupported, "{}: tensor {} is already quantized; open the model decoded, or dequantize it first",
                escape(model.path()), quote(found->layers.front().parts.front()->name));
  }
  TRY(refuse_foreign(model));
  constexpr std::string_view kScales = ".scales";
  for (const TensorInfo& tensor : model.tensors()) {
    if (!tensor.name.ends_with(kScales)) continue;
    const std::string base(tensor.name.substr(0, tensor.name.size() - kScales.size()));
    const TensorInfo* const weight = model.has(base) ? model.find(base) : model.find(base + ".weight");
    if (weight != nullptr && (weight->dtype == DType::kU32 || weight->dtype == DType::kU8)) {
      return fail(Errc::kUnsupported, "{}: tensor {} is already quantized; dequantize the model first", escape(model.path()),
                  quote(weight->name));
    }
  }
  return {};
}

}  // namespace ballast
