#include "scheme/mlx/layers.h"
#include "quantize/column_scales.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/mlx/decode.h"
#include "scheme/mlx/side_files.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScales = ".scales";
constexpr std::string_view kBiases = ".biases";

std::optional<std::string_view> without(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

std::string joined(std::string_view name, std::string_view suffix) { return std::string(name).append(suffix); }

std::string describe(const TensorInfo& tensor) { return fmt::format("{} {}", name(tensor.dtype), to_string(tensor.shape)); }

bool is_parameter(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

// Checks that the parts of one layer agree; the model is for messages.
class LayerCheck {
 public:
  LayerCheck(const Model& model, MlxLayer& layer) : model_(&model), layer_(&layer) {}

  Result<void> run() {
    TRY(check_dtypes());
    return check_shapes();
  }

 private:
  template <class... Args>
  std::unexpected<Error> error(const TensorInfo& tensor, Errc code, fmt::format_string<Args...> format, Args&&... args) const {
    return fail(code, "{}: tensor {}: {}", escape(model_->files()[tensor.file].path), quote(tensor.name),
                fmt::format(format, std::forward<Args>(args)...));
  }

  Result<void> check_dtypes() const {
    const bool affine = layer_->quantization.mode == QuantizationMode::kAffine;
    const TensorInfo& packed = *layer_->packed;
    const TensorInfo& scales = *layer_->scales;
    if (packed.dtype != DType::kU32 && packed.dtype != DType::kU8) {
      return error(packed, Errc::kUnsupported, "has scales, but packed weights are U32 or U8, not {}", name(packed.dtype));
    }
    if (affine && !is_parameter(scales.dtype)) {
      return error(scales, Errc::kCorrupt, "affine scales are F32, F16 or BF16, not {}", name(scales.dtype));
    }
    if (!affine && scales.dtype != DType::kU8) {
      return error(scales, Errc::kCorrupt, "{} scales are U8, not {}", name(layer_->quantization.mode), name(scales.dtype));
    }
    if (layer_->biases == nullptr) return {};
    const TensorInfo& biases = *layer_->biases;
    if (!affine) return error(biases, Errc::kCorrupt, "{} has no biases", name(layer_->quantization.mode));
    if (biases.dtype != scales.dtype || !std::ranges::equal(biases.shape, scales.shape)) {
      return error(biases, Errc::kCorrupt, "the biases are {}, the scales {}", describe(biases), describe(scales));
    }
    return {};
  }

  Result<void> check_shapes() {
    const TensorInfo& packed = *layer_->packed;
    const TensorInfo& scales = *layer_->scales;
    const auto [code_bits, group_size, mode] = layer_->quantization;
    if (packed.shape.empty()) return error(packed, Errc::kCorrupt, "has scales, but no dimensions");
    if (packed.elements() == 0)
      return error(packed, Errc::kCorrupt, "has scales, but shape {} is empty", to_string(packed.shape));
    const auto row_bits = checked_mul(packed.shape.back(), bits(packed.dtype));
    if (!row_bits || *row_bits % code_bits != 0) {
      return error(packed, Errc::kCorrupt, "rows of {} {} are not a whole number of {}-bit values", packed.shape.back(),
                   name(packed.dtype), code_bits);
    }
    const std::uint64_t columns = *row_bits / code_bits;
    std::vector<std::uint64_t> expected(packed.shape.begin(), packed.shape.end());
    expected.back() = columns / group_size + (columns % group_size != 0 ? 1 : 0);
    if (!std::ranges::equal(scales.shape, expected)) {
      return error(scales, Errc::kCorrupt, "the scales are {}, expected {}: {} is {} columns of {} bits, in groups of {}",
                   to_string(scales.shape), to_string(expected), describe(packed), columns, code_bits, group_size);
    }
    layer_->shape = std::move(expected);
    layer_->shape.back() = columns;
    return {};
  }

  const Model* model_;
  MlxLayer* layer_;
};

std::unexpected<Error> orphan(const Model& model, const TensorInfo& tensor, const std::string& missing) {
  return fail(Errc::kCorrupt, "{}: tensor {}: {} is missing", escape(model.files()[tensor.file].path), quote(tensor.name),
              missing);
}

Result<MlxLayer> make_layer(const Model& model, const MlxQuantization& config, std::string_view base, const TensorInfo& scales) {
  const TensorInfo* packed = model.find(joined(base, kWeight));
  if (packed == nullptr) packed = model.find(base);
  if (packed == nullptr) return orphan(model, scales, fmt::format("{} or {}", quote(joined(base, kWeight)), quote(base)));
  const auto quantization = config.find(packed->name);
  if (!quantization) {
    return fail(Errc::kCorrupt, "{}: tensor {}: the config says that {} is unquantized", escape(model.files()[scales.file].path),
                quote(scales.name), quote(packed->name));
  }
  MlxLayer layer{.name = base,
                 .packed = packed,
                 .scales = &scales,
                 .biases = model.find(joined(base, kBiases)),
                 .quantization = *quantization,
                 .shape = {},
                 .dtype = quantization->mode == QuantizationMode::kAffine ? scales.dtype : DType::kBF16};
  TRY(LayerCheck(model, layer).run());
  return layer;
}

// Reads the column scales of equalized layers from the side file.
Result<void> read_equalization(const Model& model, std::vector<MlxLayer>& layers) {
  constexpr std::string_view kSuffix = ".equalization_scales";
  const auto file = TRY(open_side_file(model, kEqualization));
  if (!file) return {};
  const std::string path = file->path();
  for (const TensorInfo& tensor : file->tensors()) {
    const auto base = without(tensor.name, kSuffix);
    const auto layer = std::ranges::find(layers, base.value_or(""), &MlxLayer::name);
    if (!base || layer == layers.end()) return orphan(*file, tensor, "its layer");
    if (tensor.dtype != DType::kF32 || tensor.elements() != layer->columns() || tensor.shape.size() != 1) {
      return fail(Errc::kCorrupt, "{}: tensor {}: {} {}, expected F32 [{}]", shown(path), quote(tensor.name), name(tensor.dtype),
                  to_string(tensor.shape), layer->columns());
    }
    layer->restore.resize(layer->columns());
    TRY(file->read_into(tensor.name, 0, std::as_writable_bytes(std::span(layer->restore))));
    if (auto checked = check_restore(layer->restore); !checked) {
      return fail_at(shown(path), std::move(checked.error()).at(fmt::format("tensor {}", quote(tensor.name))));
    }
  }
  return {};
}

// Without their scales, codes would be taken for integers.
Result<void> check_codes_have_scales(const Model& model) {
  for (const TensorInfo& tensor : model.tensors()) {
    const auto base = without(tensor.name, kWeight);
    if (!base || tensor.dtype != DType::kU32 || tensor.shape.size() < 2) continue;
    if (!model.has(joined(*base, kScales))) return orphan(model, tensor, quote(joined(*base, kScales)));
  }
  return {};
}

}  // namespace

Result<std::vector<MlxLayer>> find_mlx_layers(const Model& model, const MlxQuantization& config) {
  std::vector<MlxLayer> layers;
  for (const TensorInfo& tensor : model.tensors()) {
    if (const auto base = without(tensor.name, kBiases); base && !model.has(joined(*base, kScales))) {
      return orphan(model, tensor, quote(joined(*base, kScales)));
    }
    const auto base = without(tensor.name, kScales);
    if (!base) continue;
    auto layer = TRY(make_layer(model, config, *base, tensor));
    layers.push_back(std::move(layer));
  }
  TRY(check_codes_have_scales(model));
  std::ranges::sort(layers, {}, &MlxLayer::name);
  TRY(read_equalization(model, layers));
  return layers;
}

Result<void> read_mlx_rows(const Model& model, const MlxLayer& layer, std::uint64_t first, std::uint64_t count, DType dtype,
                           std::span<std::byte> out) {
  const std::uint64_t packed = layer.packed->bytes() / layer.rows();
  const std::uint64_t scales = layer.scale_bytes();
  const std::uint64_t biases = layer.biases != nullptr ? scales : 0;
  const Bytes buffer(allocate_bytes(count * (packed + scales + biases)));
  std::byte* end = buffer.get();
  const auto read = [&](const TensorInfo* tensor, std::uint64_t row_bytes) -> Result<std::span<const std::byte>> {
    const std::span part(end, count * row_bytes);
    end += part.size();
    if (tensor == nullptr) return part;
    TRY(model.read_into(tensor->name, first * row_bytes, part));
    return part;
  };
  const auto codes = TRY(read(layer.packed, packed));
  const auto factors = TRY(read(layer.scales, scales));
  const auto summands = TRY(read(layer.biases, biases));
  dequantize_mlx_rows(layer.quantization.mode, layer.format(), {.packed = codes, .scales = factors, .biases = summands}, dtype,
                      out);
  return {};
}

}  // namespace ballast
