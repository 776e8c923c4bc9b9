#include <ballast/quantized_weights.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <ballast/model.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/mlx/decode.h"
#include "scheme/mlx/layers.h"
#include "source/uri.h"

namespace ballast {

struct QuantizedWeights::State {
  std::string directory;
  QuantizationConfig config;
  LoadedModel loaded;
  std::vector<std::uint64_t> dims;          // of all weights
  std::vector<std::vector<float>> restore;  // of each
  std::vector<QuantizedWeight> weights;
  std::vector<TensorView> others;

  void group(const Model& model, std::span<const MlxLayer> layers);
};

// Turns what was found in `model` into views of what was loaded from it, in the same order.
void QuantizedWeights::State::group(const Model& model, std::span<const MlxLayer> layers) {
  std::vector<bool> used(model.tensors().size());
  const auto take = [&](const TensorInfo* tensor) -> const TensorView& {
    const auto position = static_cast<std::size_t>(tensor - model.tensors().data());
    used[position] = true;
    return loaded.tensors()[position];
  };
  dims.reserve(std::accumulate(layers.begin(), layers.end(), std::size_t{0},
                               [](std::size_t sum, const MlxLayer& layer) { return sum + layer.shape.size(); }));
  restore.reserve(layers.size());
  for (const MlxLayer& layer : layers) {
    restore.push_back(layer.restore);
    const std::size_t dims_at = dims.size();
    dims.insert(dims.end(), layer.shape.begin(), layer.shape.end());
    const TensorView& scales = take(layer.scales);
    weights.push_back({.name = scales.name.substr(0, layer.name.size()),
                       .shape = Shape(dims).subspan(dims_at),
                       .dtype = layer.dtype,
                       .bits = layer.quantization.bits,
                       .group_size = layer.quantization.group_size,
                       .mode = layer.quantization.mode,
                       .packed = take(layer.packed),
                       .scales = scales,
                       .biases = layer.biases != nullptr ? std::optional(take(layer.biases)) : std::nullopt,
                       .restore = restore.back()});
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) others.push_back(loaded.tensors()[i]);
  }
  std::ranges::sort(others, {}, &TensorView::name);
}

std::uint64_t QuantizedWeight::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

QuantizedWeights::QuantizedWeights(std::unique_ptr<State> state) : state_(std::move(state)) {}
QuantizedWeights::QuantizedWeights(QuantizedWeights&&) noexcept = default;
QuantizedWeights& QuantizedWeights::operator=(QuantizedWeights&&) noexcept = default;
QuantizedWeights::~QuantizedWeights() = default;

std::span<const QuantizedWeight> QuantizedWeights::weights() const { return state_->weights; }
std::span<const TensorView> QuantizedWeights::others() const { return state_->others; }
const LoadedModel& QuantizedWeights::tensors() const { return state_->loaded; }
const QuantizationConfig& QuantizedWeights::config() const { return state_->config; }

const QuantizedWeight* QuantizedWeights::find(std::string_view name) const {
  constexpr std::string_view kWeight = ".weight";
  const auto named = [&](std::string_view base) -> const QuantizedWeight* {
    const auto found = std::ranges::lower_bound(state_->weights, base, {}, &QuantizedWeight::name);
    return found != state_->weights.end() && found->name == base ? &*found : nullptr;
  };
  if (const QuantizedWeight* const weight = named(name)) return weight;
  if (!name.ends_with(kWeight)) return nullptr;
  const QuantizedWeight* const weight = named(name.substr(0, name.size() - kWeight.size()));
  return weight != nullptr && weight->packed.name == name ? weight : nullptr;
}

Result<Tensor> QuantizedWeights::dequantize(std::string_view name, DType dtype, unsigned threads) const {
  constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 18;
  const std::string place = shown(state_->directory);
  const QuantizedWeight* const weight = find(name);
  if (weight == nullptr) {
    return fail(Errc::kNotFound, "{}: no quantized weight {} among {}", place, quote(name), weights().size());
  }
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return fail(Errc::kInvalidArgument, "{}: {} can be dequantized to F32, F16 or BF16, not {}", place, quote(name),
                ballast::name(dtype));
  }
  const std::uint64_t columns = weight->shape.back();
  const std::uint64_t rows = weight->elements() / columns;
  const RowFormat format{.columns = columns,
                         .bits = weight->bits,
                         .group_size = weight->group_size,
                         .parameters = weight->dtype,
                         .restore = weight->restore};
  const auto bytes = checked_mul(weight->elements(), bits(dtype) / 8);
  if (!bytes) return fail(Errc::kUnsupported, "{}: {} values of {} are too many", place, weight->elements(), quote(name));

  Tensor out(std::string(weight->packed.name), dtype, {weight->shape.begin(), weight->shape.end()}, *bytes);
  const std::uint64_t block_rows = std::max<std::uint64_t>(1, kPieceValues / columns);
  parallel_for(rows / block_rows + (rows % block_rows != 0 ? 1 : 0), threads, [&](unsigned, std::size_t block) {
    const std::uint64_t first = block * block_rows;
    const std::uint64_t count = std::min(block_rows, rows - first);
    const auto part = [&](auto all) { return all.subspan(all.size() / rows * first, all.size() / rows * count); };
    dequantize_mlx_rows(weight->mode, format,
                        {.packed = part(weight->packed.bytes),
                         .scales = part(weight->scales.bytes),
                         .biases = weight->biases ? part(weight->biases->bytes) : std::span<const std::byte>()},
                        dtype, part(out.bytes()));
    return true;
  });
  return out;
}

Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options) {
  auto config = read_quantization_config(directory);
  if (!config) return std::unexpected(config.error());
  const auto model = TRY(Model::open(directory));
  if (!*config) {
    return fail(Errc::kNotFound,
                "{}: no quantization_config.json, and no config.json with a section quantization or "
                "quantization_config",
                shown(directory));
  }
  const auto layers = TRY(find_mlx_layers(model, **config));
  auto loaded = TRY(model.load_all(options));
  auto state = std::make_unique<QuantizedWeights::State>(QuantizedWeights::State{.directory = directory,
                                                                                 .config = std::move(**config),
                                                                                 .loaded = std::move(loaded),
                                                                                 .dims = {},
                                                                                 .restore = {},
                                                                                 .weights = {},
                                                                                 .others = {}});
  state->group(model, layers);
  return QuantizedWeights(std::move(state));
}

}  // namespace ballast
