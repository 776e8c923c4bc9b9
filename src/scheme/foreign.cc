#include "scheme/foreign.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <ballast/mlx_quantization.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;
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
    NamePattern{.suffix = "qbiases", .needs = Needs::kSibling, .sibling = "scales", .scheme = "metal"},
    NamePattern{.suffix = "_scale_inv", .needs = Needs::kSibling, .sibling = "", .scheme = "fp8"},
    NamePattern{.suffix = "qscale_weight", .needs = Needs::kSibling, .sibling = "weight", .scheme = "fp8"},  // Mistral
    NamePattern{.suffix = "weight_scale", .needs = Needs::kSibling, .sibling = "weight", .scheme = kUnknown},
    NamePattern{.suffix = "_weight_scale", .needs = Needs::kSibling, .sibling = "", .scheme = kUnknown},  // fused experts
    NamePattern{.suffix = "weight_scales", .needs = Needs::kSibling, .sibling = "weight", .scheme = kUnknown},
    NamePattern{.suffix = "qweight", .needs = Needs::kSibling, .sibling = "scales", .scheme = kUnknown},
    NamePattern{.suffix = "_scale", .needs = Needs::kCodes, .sibling = "", .scheme = kUnknown},
    NamePattern{.suffix = ".scale", .needs = Needs::kCodes, .sibling = ".weight", .scheme = kUnknown},  // DeepSeek-V4
};

struct SideFile {
  std::string_view name;
  std::string_view pointer;  // to a value that only a quantizer's file has, where the file does not name the quantizer
  std::string_view scheme;
};

constexpr std::array kSideFiles{
    SideFile{.name = kQuantizationConfigFile, .pointer = {}, .scheme = {}},
    SideFile{.name = kHfQuantConfigFile, .pointer = "/quantization/quant_algo", .scheme = "modelopt"},
    SideFile{.name = kQuantizeConfigFile, .pointer = "/bits", .scheme = "gptq"},  // transformers.js has a file of that name
    SideFile{.name = kQuantConfigFile, .pointer = "/w_bit", .scheme = "awq"},
};

// U32 is left out: it holds MLX's codes.
bool may_hold_codes(DType dtype) {
  return (bits(dtype) <= 8 && dtype != DType::kBool) || dtype == DType::kI16 || dtype == DType::kI32;
}

bool may_hold_codes(const TensorInfo& tensor) { return tensor.shape.size() >= 2 && may_hold_codes(tensor.dtype); }

// The quantizer that a section names, unless its weights can be decoded.
Found find_method(object section, std::string_view place) {
  element method;
  if (section["quant_method"].get(method) != simdjson::SUCCESS || method.is_null()) return std::nullopt;
  const auto decoded = parse_mlx_quantization(simdjson::to_string(section));
  if (decoded || decoded.error().code != Errc::kUnsupported) return std::nullopt;
  constexpr std::size_t kLongest = 40;
  std::string_view text;
  const bool is_name = method.get(text) == simdjson::SUCCESS && !text.empty() && text.size() <= kLongest;
  return ForeignQuantization{.scheme = is_name ? escape(text) : std::string(kUnknown),
                             .evidence = fmt::format("{}: quant_method {}", place, describe(method))};
}

Found find_in_scope(object scope, std::string_view place) {
  object section;
  if (scope["quantization_config"].get(section) == simdjson::SUCCESS) {
    if (auto found = find_method(section, place)) return found;
    for (const std::string_view key : {"load_in_4bit", "load_in_8bit"}) {
      bool is_set = false;
      if (section[key].get(is_set) != simdjson::SUCCESS || !is_set) continue;
      return ForeignQuantization{.scheme = "bitsandbytes", .evidence = fmt::format("{}: {} true", place, key)};
    }
  }
  constexpr std::string_view kCompression = "compression_config";
  if (scope[kCompression].get(section) != simdjson::SUCCESS || section.size() == 0) return std::nullopt;
  if (auto found = find_method(section, place)) return found;
  return ForeignQuantization{.scheme = "compressed-tensors", .evidence = fmt::format("{}: {}", place, kCompression)};
}

// In the config and its sections, such as text_config.
Result<Found> find_in_config(const ModelConfig& config) {
  simdjson::dom::parser parser;
  const element document = TRY(parse_json(parser, config.json));
  object root;
  if (document.get(root) != simdjson::SUCCESS) return std::nullopt;
  if (auto found = find_in_scope(root, kConfigFile)) return found;
  for (const auto [key, value] : root) {
    object scope;
    if (value.get(scope) != simdjson::SUCCESS) continue;
    if (auto found = find_in_scope(scope, fmt::format("{}: {}", kConfigFile, escape(key)))) return found;
  }
  return std::nullopt;
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

Found find_in_names(const Model& model) {
  for (const NamePattern& pattern : kNames) {
    for (const TensorInfo& tensor : model.tensors()) {
      if (auto found = match(model, tensor, pattern)) return found;
    }
  }
  return std::nullopt;
}

Result<Found> find_in_side_file(const std::string& text, const SideFile& file) {
  simdjson::dom::parser parser;
  const element document = TRY(parse_json(parser, text));
  object root;
  if (document.get(root) != simdjson::SUCCESS) return std::nullopt;
  if (auto found = find_method(root, file.name)) return found;
  element value;
  if (file.pointer.empty() || root.at_pointer(file.pointer).get(value) != simdjson::SUCCESS || value.is_null()) {
    return std::nullopt;
  }
  const std::string_view key = file.pointer.substr(file.pointer.rfind('/') + 1);
  return ForeignQuantization{.scheme = std::string(file.scheme),
                             .evidence = fmt::format("{}: {} {}", file.name, key, describe(value))};
}

Result<Found> find_beside(const Folder& folder) {
  for (const SideFile& file : kSideFiles) {
    const auto text = TRY(folder.read_text(file.name));
    if (!text) continue;
    auto found = find_in_side_file(*text, file);
    if (!found) return fail_at(shown(join_path(folder.path(), file.name)), found.error());
    if (*found) return found;
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
  const bool is_decoded = is_mlx(model);
  if (model.config() && !is_decoded) {
    auto in_config = TRY(find_in_config(*model.config()));
    if (in_config) return in_config;
  }
  if (auto in_metadata = find_in_metadata(model)) return in_metadata;
  auto named = find_in_names(model);
  if (named && named->scheme != kUnknown) return named;
  const Folder* const folder = ModelAccess::folder(model);
  if (is_decoded || folder == nullptr) return named;
  // If all weights are plain floats, such a file is left over from other weights.
  const auto holds_codes = [](const TensorInfo& tensor) { return may_hold_codes(tensor); };
  if (!named && std::ranges::none_of(model.tensors(), holds_codes)) return std::nullopt;
  auto beside = TRY(find_beside(*folder));
  return beside ? beside : named;
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

Result<void> refuse_codes(const Model& model) {
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
