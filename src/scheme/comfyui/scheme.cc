#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/comfyui/layers.h"
#include "scheme/comfyui/swizzled.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "comfyui";
constexpr std::string_view kOldScale = ".scale_weight";
// Metadata of a file that another program than ComfyUI packed, which the user must add: nothing else shows it.
constexpr std::string_view kNibbleOrder = "ballast_fp4_nibble_order";
constexpr std::array<std::string_view, 2> kInputScales{".input_scale", ".scale_input"};

enum class Kind : std::uint8_t { kScaled, kNvfp4, kMxfp8 };

struct ComfyFormat {
  std::string_view name;
  Kind kind;
  DType codes;  // of the elements
  unsigned bits;
  unsigned group_size;  // 0: one scale for the whole weight
  unsigned padding;     // ComfyUI pads rows and columns to a multiple of this; other programs may not
};
constexpr std::array kFormats{
    ComfyFormat{
        .name = "float8_e4m3fn", .kind = Kind::kScaled, .codes = DType::kF8E4M3, .bits = 8, .group_size = 0, .padding = 1},
    ComfyFormat{.name = "float8_e5m2", .kind = Kind::kScaled, .codes = DType::kF8E5M2, .bits = 8, .group_size = 0, .padding = 1},
    ComfyFormat{.name = "nvfp4", .kind = Kind::kNvfp4, .codes = DType::kF4, .bits = 4, .group_size = 16, .padding = 16},
    ComfyFormat{.name = "mxfp8", .kind = Kind::kMxfp8, .codes = DType::kF8E4M3, .bits = 8, .group_size = 32, .padding = 32},
};

bool is_f8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

class ComfyFinder {
 public:
  explicit ComfyFinder(const Model& model) : model_(model), dtype_(config_dtype(model).value_or(DType::kBF16)) {}

  Result<Layers> run() {
    for (const ComfyLayer& layer : TRY(find_comfy_layers(model_))) TRY(add_described(layer));
    for (const TensorInfo& tensor : model_.tensors()) {
      if (tensor.name.ends_with(kOldScale)) TRY(add_old(tensor));
      if (tensor.name.ends_with(kComfyScaledFp8)) TRY(add_marker(tensor));
    }
    return std::move(found_);
  }

 private:
  Result<void> add_described(const ComfyLayer& described) {
    const auto* const format = std::ranges::find(kFormats, described.format, &ComfyFormat::name);
    if (format == kFormats.end()) {
      std::vector<std::string_view> names;
      for (const ComfyFormat& known : kFormats) names.push_back(known.name);
      return fail(Errc::kUnsupported, "{}: format {} cannot be decoded, only {}", described.place, quote(described.format),
                  fmt::join(names, ", "));
    }
    if (described.group_size && format->group_size != 0 && *described.group_size != format->group_size) {
      return fail(Errc::kCorrupt, "{}: group_size is {}, expected {} for {}", described.place, *described.group_size,
                  format->group_size, format->name);
    }
    const TensorInfo& weight = *model_.find(described.name + ".weight");
    const TensorInfo& scale = *TRY(need(described, ".weight_scale"));
    Layer layer = make_layer(weight, *format);
    layer.parts = {&weight, &scale};
    if (format->kind == Kind::kScaled) {
      TRY(check_dtype(model_, weight, {format->codes, DType::kU8}));
      TRY(set_scaled(layer, format->codes));
    } else {
      if (format->kind == Kind::kNvfp4) layer.parts.push_back(TRY(need(described, ".weight_scale_2")));
      TRY(set_swizzled(layer, *format, described));
    }
    if (described.description != nullptr) layer.parts.push_back(described.description);
    add(std::move(layer), described.name);
    return {};
  }

  Result<const TensorInfo*> need(const ComfyLayer& layer, std::string_view suffix) const {
    const std::string name = std::string(layer.name).append(suffix);
    const TensorInfo* const found = model_.find(name);
    if (found == nullptr)
      return fail(Errc::kCorrupt, "{}: format is {}, but {} is missing", layer.place, quote(layer.format), quote(name));
    return found;
  }

  Layer make_layer(const TensorInfo& weight, const ComfyFormat& format) const {
    Layer layer;
    layer.name = weight.name;
    layer.dtype = dtype_;
    layer.shape.assign(weight.shape.begin(), weight.shape.end());
    layer.storage.mode = format.name;
    layer.storage.bits = format.bits;
    layer.storage.group_size = format.group_size;
    return layer;
  }

  // One scale for a weight of any shape.
  Result<void> set_scaled(Layer& layer, DType codes) const {
    const TensorInfo& weight = *layer.parts[0];
    const TensorInfo& scale = *layer.parts[1];
    TRY(check_dtype(model_, scale, {DType::kF32, DType::kBF16, DType::kF16}));
    TRY(check_scalar(scale));
    if (weight.elements() == 0) return fail_tensor(model_, weight, Errc::kCorrupt, "has a scale, but is empty");
    layer.rows = weight.shape.size() < 2 ? 1 : weight.shape.front();
    const std::uint64_t columns = weight.elements() / layer.rows;
    layer.storage.group_size = static_cast<unsigned>(columns);
    Grouped grouped{.columns = columns, .group_size = columns};
    grouped.codes = element_codes(weight, codes, columns);
    grouped.scales = parameter_table({.tensor = &scale, .dtype = scale.dtype, .groups = 1, .block_rows = layer.rows});
    layer.decoder = grouped_decoder(std::move(grouped));
    return {};
  }

  Result<void> set_swizzled(Layer& layer, const ComfyFormat& format, const ComfyLayer& described) const {
    const bool is_nvfp4 = format.kind == Kind::kNvfp4;
    const TensorInfo& weight = *layer.parts[0];
    const TensorInfo& scale = *layer.parts[1];
    const TensorInfo* const factor = is_nvfp4 ? layer.parts[2] : nullptr;
    if (is_nvfp4) {
      TRY(check_dtype(model_, weight, {DType::kU8}));
      TRY(check_dtype(model_, scale, {DType::kF8E4M3}));
      TRY(check_dtype(model_, *factor, {DType::kF32}));
      TRY(check_scalar(*factor));
    } else {
      TRY(check_dtype(model_, weight, {DType::kF8E4M3, DType::kU8}));
      TRY(check_dtype(model_, scale, {DType::kU8, DType::kF8E8M0}));
    }
    if (weight.shape.size() != 2 || weight.elements() == 0) {
      return fail_tensor(model_, weight, Errc::kCorrupt, "shape is {}, expected a matrix", to_string(weight.shape));
    }
    const std::uint64_t row_bytes = weight.shape[1];
    const std::array<std::uint64_t, 2> stored{weight.shape[0], is_nvfp4 ? row_bytes * 2 : row_bytes};
    if (stored[1] % format.group_size != 0) {
      return fail_tensor(model_, weight, Errc::kCorrupt, "has {} columns, expected a multiple of {} for {}", stored[1],
                         format.group_size, format.name);
    }
    TRY(check_shape(model_, scale, swizzled_shape(stored[0], stored[1] / format.group_size),
                    fmt::format("{} has {} rows and {} columns", quote(weight.name), stored[0], stored[1])));
    const auto shape = TRY(unpadded(described, stored, format));
    layer.shape = {shape[0], shape[1]};
    layer.rows = shape[0];
    Grouped grouped{.columns = shape[1], .group_size = format.group_size};
    grouped.codes = is_nvfp4 ? nibble_codes(weight, shape[1], row_bytes, TRY(nibbles_of(weight)), kE2M1)
                             : element_codes(weight, format.codes, shape[1], row_bytes);
    grouped.scales = swizzled_scales({.tensor = &scale,
                                      .dtype = is_nvfp4 ? DType::kF8E4M3 : DType::kF8E8M0,
                                      .groups = (shape[1] - 1) / format.group_size + 1,
                                      .stored_groups = stored[1] / format.group_size,
                                      .factor = factor});
    layer.decoder = grouped_decoder(std::move(grouped));
    return {};
  }

  Result<Nibbles> nibbles_of(const TensorInfo& weight) const {
    const ModelFile& file = model_.files()[weight.file];
    const auto order = file.metadata.find(kNibbleOrder);
    if (order == file.metadata.end() || order->second == "high_first") return Nibbles::kHighFirst;
    if (order->second == "low_first") return Nibbles::kLowFirst;
    return fail(Errc::kCorrupt, "{}: metadata '{}' is {}, expected 'high_first' or 'low_first'", escape(file.path), kNibbleOrder,
                quote(order->second));
  }

  // Without a description of the original shape, the padding cannot be told from the weight.
  static Result<std::array<std::uint64_t, 2>> unpadded(const ComfyLayer& described, const std::array<std::uint64_t, 2>& stored,
                                                       const ComfyFormat& format) {
    if (!described.shape) return stored;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const std::uint64_t dim = (*described.shape)[i];
      if (dim <= stored[i] && stored[i] - dim < format.padding) continue;
      return fail(Errc::kCorrupt, "{}: orig_shape is {}, which padded to a multiple of {} is not {}", described.place,
                  to_string(*described.shape), format.padding, to_string(stored));
    }
    return *described.shape;
  }

  Result<void> check_scalar(const TensorInfo& tensor) const {
    if (tensor.elements() == 1) return {};
    return fail_tensor(model_, tensor, Errc::kCorrupt, "shape is {}, expected [] or [1]", to_string(tensor.shape));
  }

  // The old form, which describes its layers by names only.
  Result<void> add_old(const TensorInfo& scale) {
    const std::string module(scale.name.substr(0, scale.name.size() - kOldScale.size()));
    const TensorInfo* const weight = model_.find(module + ".weight");
    if (weight == nullptr) return fail_tensor(model_, scale, Errc::kCorrupt, "{} is missing", quote(module + ".weight"));
    TRY(check_dtype(model_, *weight, {DType::kF8E4M3, DType::kF8E5M2}));
    if (const auto kind = TRY(marked_dtype(weight->name)); kind && *kind != weight->dtype) {
      return fail_tensor(model_, *weight, Errc::kCorrupt, "dtype is {}, but the dtype of the tensor {} means {}",
                         name(weight->dtype), quote(kComfyScaledFp8), name(*kind));
    }
    Layer layer = make_layer(*weight, *std::ranges::find(kFormats, weight->dtype, &ComfyFormat::codes));
    layer.parts = {weight, &scale};
    TRY(set_scaled(layer, weight->dtype));
    add(std::move(layer), module);
    return {};
  }

  // The dtype of the scaled weights with the longest prefix of this name that has a marker.
  Result<std::optional<DType>> marked_dtype(std::string_view weight) const {
    for (std::size_t dot = weight.rfind('.'); dot != std::string_view::npos;
         dot = dot == 0 ? dot - 1 : weight.rfind('.', dot - 1)) {
      if (const auto* const marker = model_.find(std::string(weight.substr(0, dot + 1)).append(kComfyScaledFp8))) {
        return TRY(dtype_of_marker(*marker));
      }
    }
    if (const auto* const marker = model_.find(kComfyScaledFp8)) return TRY(dtype_of_marker(*marker));
    return std::nullopt;
  }

  Result<DType> dtype_of_marker(const TensorInfo& marker) const {
    TRY(check_dtype(model_, marker, {DType::kF8E4M3, DType::kF8E5M2, DType::kF32}));
    return marker.dtype == DType::kF32 ? DType::kF8E4M3 : marker.dtype;
  }

  Result<void> add_marker(const TensorInfo& marker) {
    TRY(dtype_of_marker(marker));
    found_.dropped.push_back(&marker);
    return {};
  }

  void add(Layer layer, const std::string& module) {
    for (const std::string_view suffix : kInputScales) {
      if (const TensorInfo* const input = model_.find(std::string(module).append(suffix))) found_.dropped.push_back(input);
    }
    found_.layers.push_back(std::move(layer));
  }

  const Model& model_;
  DType dtype_;
  Layers found_;
};

// Quantized weights of ComfyUI. F8 weights without a scale are casts.
class ComfyScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    if (!declared.empty()) return std::nullopt;
    const auto has_metadata = [](const ModelFile& file) { return file.metadata.contains(kComfyMetadata); };
    const auto is_mark = [&](const TensorInfo& tensor) {
      if (tensor.name.ends_with(kComfyQuant) || tensor.name.ends_with(kComfyScaledFp8)) return true;
      const TensorInfo* const weight = find_sibling(model, tensor.name, kOldScale, ".weight");
      return weight != nullptr && is_f8(weight->dtype);
    };
    if (std::ranges::none_of(model.files(), has_metadata) && std::ranges::none_of(model.tensors(), is_mark)) return std::nullopt;
    return TRY(ComfyFinder(model).run());
  }
};

}  // namespace

const LayerScheme& comfyui_scheme() {
  static const ComfyScheme scheme;
  return scheme;
}

}  // namespace ballast
