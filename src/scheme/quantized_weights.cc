#include <ballast/quantized_weights.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <ballast/convert.h>
#include <ballast/model.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "quantize/rows.h"
#include "scheme/load_codes.h"
#include "scheme/mlx/config.h"
#include "scheme/mlx/decode.h"
#include "scheme/mlx/layers.h"
#include "scheme/reader.h"
#include "source/uri.h"

namespace ballast {

struct QuantizedWeights::State {
  std::string directory;
  MlxQuantization config;
  LoadedModel loaded;
  std::deque<std::vector<std::uint64_t>> shapes;  // what weights borrow, as the next
  std::deque<std::vector<float>> restore;
  std::vector<QuantizedWeight> weights;
  std::vector<TensorView> others;

  State(std::string place, MlxQuantization of, LoadedModel tensors)
      : directory(std::move(place)), config(std::move(of)), loaded(std::move(tensors)) {}

  void group(const Model& model, std::span<const MlxLayer> layers);
  void group(const WeightsReader& reader);
};

namespace {

// The quantization that Parquet files record, as a config.
MlxQuantization config_of(const WeightsReader& reader) {
  MlxQuantization config;
  std::map<std::pair<unsigned, unsigned>, std::size_t> uses;
  std::size_t most = 0;
  for (const Weight& weight : reader.weights()) {
    auto& entry = config.per_tensor[weight.name];
    if (!weight.is_quantized()) continue;
    entry = TensorQuantization{.bits = weight.storage.bits, .group_size = weight.storage.group_size};
    const std::size_t count = ++uses[{entry->bits, entry->group_size}];
    if (count <= most) continue;
    most = count;
    config.defaults = *entry;
  }
  return config;
}

// Rows of a weight, as the bytes of its tensors.
struct StoredRows {
  std::span<const std::byte> packed;
  std::span<const std::byte> scales;
  std::span<const std::byte> offsets;  // zero points or biases; empty if there are none
};

std::span<const float> as_floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// As WeightsReader::read_rows() does. Scales and zero points are aligned: load_codes() saw to it.
void dequantize_zero_point_rows(const RowFormat& format, const StoredRows& rows, DType dtype, std::span<std::byte> out) {
  const auto decode = [&](std::span<float> values) {
    dequantize_rows(format, rows.packed, as_floats(rows.scales), as_floats(rows.offsets), values);
  };
  const std::size_t count = out.size() * 8 / bits(dtype);
  if (dtype == DType::kF32) return decode({reinterpret_cast<float*>(out.data()), count});
  std::vector<float> values(count);
  decode(values);
  const auto converted = convert_values(DType::kF32, std::as_bytes(std::span(values)), dtype, out);
  assert(converted);
}

}  // namespace

// Turns the layers of `model` into views of the loaded tensors, in the same order.
void QuantizedWeights::State::group(const Model& model, std::span<const MlxLayer> layers) {
  std::vector<bool> used(model.tensors().size());
  const auto take = [&](const TensorInfo* tensor) -> const TensorView& {
    const auto position = static_cast<std::size_t>(tensor - model.tensors().data());
    used[position] = true;
    return loaded.tensors()[position];
  };
  for (const MlxLayer& layer : layers) {
    const TensorView& scales = take(layer.scales);
    weights.push_back({.name = scales.name.substr(0, layer.name.size()),
                       .scheme = "mlx",
                       .shape = shapes.emplace_back(layer.shape),
                       .dtype = layer.dtype,
                       .bits = layer.quantization.bits,
                       .group_size = layer.quantization.group_size,
                       .mode = layer.quantization.mode,
                       .packed = take(layer.packed),
                       .scales = scales,
                       .biases = layer.biases != nullptr ? std::optional(take(layer.biases)) : std::nullopt,
                       .zero_points = std::nullopt,
                       .restore = restore.emplace_back(layer.restore)});
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) others.push_back(loaded.tensors()[i]);
  }
  std::ranges::sort(others, {}, &TensorView::name);
}

// Likewise for what load_codes() loaded.
void QuantizedWeights::State::group(const WeightsReader& reader) {
  const TensorView* tensor = loaded.tensors().data();
  for (const Weight& weight : reader.weights()) {
    if (!weight.is_quantized()) {
      others.push_back(*tensor++);
      continue;
    }
    const std::span<const float> columns = reader.format(weight).restore;
    weights.push_back({.name = tensor[0].name,
                       .scheme = reader.scheme(),
                       .shape = shapes.emplace_back(weight.shape),
                       .dtype = weight.dtype,
                       .bits = weight.storage.bits,
                       .group_size = weight.storage.group_size,
                       .mode = QuantizationMode::kAffine,
                       .packed = tensor[0],
                       .scales = tensor[1],
                       .biases = std::nullopt,
                       .zero_points = tensor[2],
                       .restore = restore.emplace_back(columns.begin(), columns.end())});
    tensor += 3;
  }
  std::ranges::sort(weights, {}, &QuantizedWeight::name);
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
const MlxQuantization& QuantizedWeights::quantization() const { return state_->config; }

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
    return fail(Errc::kNotFound, "{}: no quantized weight {} among {}{}", place, quote(name), weights().size(),
                did_you_mean(name, weights()));
  }
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return fail(Errc::kInvalidArgument, "{}: {} can be dequantized to F32, F16 or BF16, not {}", place, quote(name),
                ballast::name(dtype));
  }
  const bool has_zero_points = weight->zero_points.has_value();
  const std::uint64_t rows = has_zero_points ? weight->shape.front() : weight->elements() / weight->shape.back();
  const std::uint64_t columns = weight->elements() / rows;
  const RowFormat format{.columns = columns,
                         .bits = weight->bits,
                         .group_size = weight->group_size,
                         .affine = has_zero_points ? Affine::kScaleZero : Affine::kScaleBias,
                         .parameters = has_zero_points ? DType::kBF16 : weight->dtype,
                         .restore = weight->restore};
  const std::optional<TensorView>& offsets = has_zero_points ? weight->zero_points : weight->biases;
  const auto bytes = checked_mul(weight->elements(), bits(dtype) / 8);
  if (!bytes) return fail(Errc::kUnsupported, "{}: {} values of {} do not fit in memory", place, weight->elements(), quote(name));

  Tensor out(std::string(weight->packed.name), dtype, {weight->shape.begin(), weight->shape.end()}, *bytes);
  const std::uint64_t block_rows = std::max<std::uint64_t>(1, kPieceValues / columns);
  parallel_for(rows / block_rows + (rows % block_rows != 0 ? 1 : 0), threads, [&](unsigned, std::size_t block) {
    const std::uint64_t first = block * block_rows;
    const std::uint64_t count = std::min(block_rows, rows - first);
    const auto part = [&](auto all) { return all.subspan(all.size() / rows * first, all.size() / rows * count); };
    const StoredRows stored{.packed = part(weight->packed.bytes),
                            .scales = part(weight->scales.bytes),
                            .offsets = offsets ? part(offsets->bytes) : std::span<const std::byte>()};
    if (has_zero_points) {
      dequantize_zero_point_rows(format, stored, dtype, part(out.bytes()));
    } else {
      dequantize_mlx_rows(weight->mode, format, {.packed = stored.packed, .scales = stored.scales, .biases = stored.offsets},
                          dtype, part(out.bytes()));
    }
    return true;
  });
  return out;
}

Result<QuantizedWeights> load_quantized_weights(const std::string& directory, const LoadOptions& options) {
  Place place = TRY(find_place(directory));
  if (is_parquet_model(place)) {
    const auto reader = TRY(open_parquet_reader(directory, std::move(*place.folder), {}));
    auto loaded = TRY(load_codes(*reader, options));
    auto state = std::make_unique<QuantizedWeights::State>(directory, config_of(*reader), std::move(loaded));
    state->group(*reader);
    return QuantizedWeights(std::move(state));
  }
  const auto model = TRY(ModelAccess::open(directory, std::move(place), {}));
  auto config = TRY(mlx_quantization_of(model));
  if (!config) {
    return fail(Errc::kNotFound,
                "{}: no quantization_config.json, and no config.json with a section quantization or "
                "quantization_config",
                shown(directory));
  }
  const auto layers = TRY(find_mlx_layers(model, *config));
  auto loaded = TRY(model.load_all(options));
  auto state = std::make_unique<QuantizedWeights::State>(directory, std::move(*config), std::move(loaded));
  state->group(model, layers);
  return QuantizedWeights(std::move(state));
}

}  // namespace ballast
