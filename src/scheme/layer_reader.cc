#include "scheme/layer_reader.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include <ballast/convert.h>

#include "base/try.h"
#include "scheme/foreign.h"
#include "scheme/mlx/config.h"
#include "scheme/model_reader.h"

namespace ballast {
namespace {

constexpr unsigned kLeastGroup = 16;
constexpr std::uint64_t kMostAligned = std::uint64_t{1} << 17;  // columns: 128 rows of more take too much memory

class LayerReader final : public ModelReader {
 public:
  LayerReader(Model model, std::string_view scheme, Layers found)
      : ModelReader(std::move(model)), scheme_(scheme), layers_(std::move(found.layers)) {
    std::set<const TensorInfo*> parts;
    for (const TensorInfo* const tensor : found.dropped) {
      if (parts.insert(tensor).second) dropped_.emplace_back(tensor->name);
    }
    for (const Layer& layer : layers_) {
      // As a writer of these formats has it, so that metrics are equal to the last bit.
      const std::uint64_t columns = product_of(layer.shape) / layer.rows;
      add(weight_of(layer), {.columns = columns,
                             .group_size = padded_group_size(std::max(layer.storage.group_size, kLeastGroup)),
                             .is_aligned = columns <= kMostAligned});
      parts.insert(layer.parts.begin(), layer.parts.end());
    }
    add_others(parts);
  }

  std::string_view scheme() const override { return scheme_; }
  std::span<const std::string> dropped() const override { return dropped_; }
  bool has_codes(const Weight&) const override { return false; }
  bool is_transposed(const Weight& weight) const override { return layer_of(weight).decoder->is_transposed(); }

  Result<void> read_rows(const Weight& weight, std::uint64_t first, std::uint64_t count, DType dtype,
                         std::span<std::byte> out) const override {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 16;  // values: fits a core's cache
    const RowDecoder& decoder = *layer_of(weight).decoder;
    const std::uint64_t columns = format(weight).columns;
    const std::uint64_t most = decoder.is_transposed() ? count : std::clamp<std::uint64_t>(kPiece / columns, 1, count);
    const std::uint64_t row_bytes = columns * bits(dtype) / 8;
    std::vector<float> values(most * columns);
    for (std::uint64_t row = 0; row < count; row += most) {
      const std::uint64_t rows = std::min(most, count - row);
      const std::span piece = std::span(values).first(rows * columns);
      TRY(decoder.decode(model(), first + row, rows, piece));
      TRY(convert_values(DType::kF32, std::as_bytes(piece), dtype, out.subspan(row * row_bytes, rows * row_bytes)));
    }
    return {};
  }

  Result<std::vector<std::string>> check_values() const override {
    std::vector<std::string> found;
    for (const Layer& layer : layers_) {
      for (std::string& message : TRY(layer.decoder->check_values(model()))) found.push_back(std::move(message));
    }
    return found;
  }

 private:
  static std::uint64_t product_of(const std::vector<std::uint64_t>& shape) {
    std::uint64_t product = 1;
    for (const std::uint64_t dim : shape) product *= dim;
    return product;
  }

  Weight weight_of(const Layer& layer) const {
    Weight weight{.name = layer.name,
                  .dtype = layer.dtype,
                  .shape = layer.shape,
                  .storage = layer.storage,
                  .tensors = {},
                  .rows = layer.rows,
                  .file = model().files()[layer.parts.front()->file].path};
    weight.storage.scheme = scheme_;
    for (const TensorInfo* const part : layer.parts) {
      weight.tensors.emplace_back(part->name);
      weight.bytes += part->bytes();
    }
    return weight;
  }

  // Layers are the first weights.
  const Layer& layer_of(const Weight& weight) const { return layers_[static_cast<std::size_t>(&weight - weights().data())]; }

  std::string_view scheme_;
  std::vector<Layer> layers_;
  std::vector<std::string> dropped_;
};

Result<void> check_names(const Model& model, const Layers& found) {
  std::set<const TensorInfo*> parts(found.dropped.begin(), found.dropped.end());
  std::set<std::string_view> names;
  for (const Layer& layer : found.layers) {
    parts.insert(layer.parts.begin(), layer.parts.end());
    if (!names.insert(layer.name).second) {
      return fail_tensor(model, *layer.parts.front(), Errc::kCorrupt, "weight {} is stored twice", quote(layer.name));
    }
  }
  for (const Layer& layer : found.layers) {
    const TensorInfo* const other = model.find(layer.name);
    if (other == nullptr || parts.contains(other)) continue;
    return fail_tensor(model, *other, Errc::kCorrupt, "the weight is stored twice, also as {}", quote(layer.parts.front()->name));
  }
  return refuse_leftovers(model, parts);
}

// In the order in which they are tried: layouts that share names with others come before them.
constexpr std::array kLayerSchemes{&comfyui_scheme,      &compressed_tensors_scheme, &gptq_scheme,  &awq_scheme,
                                   &bitsandbytes_scheme, &modelopt_scheme,           &mxfp4_scheme, &fp8_scheme};

}  // namespace

Result<std::unique_ptr<WeightsReader>> LayerScheme::open(Model& model, std::span<const Declared> declared) const {
  auto found = TRY(find(model, declared));
  if (!found) return nullptr;
  TRY(check_names(model, *found));
  return std::make_unique<LayerReader>(std::move(model), name(), std::move(*found));
}

std::span<const Scheme* const> all_schemes() {
  static const auto schemes = [] {
    std::vector<const Scheme*> all{&mlx_scheme(), &parquet_scheme()};
    for (const auto scheme : kLayerSchemes) all.push_back(&scheme());
    return all;
  }();
  return schemes;
}

Result<std::optional<Layers>> find_layers(const Model& model) {
  // A model that MLX quantized may still have the section of the model that it was made from.
  if (const auto mlx = mlx_quantization_of(model); mlx && *mlx) return std::nullopt;
  const std::vector<Declared> declared = TRY(find_declared(model));
  for (const auto scheme : kLayerSchemes) {
    if (auto found = TRY(scheme().find(model, declared))) return found;
  }
  return std::nullopt;
}

}  // namespace ballast
