#include <ballast/weights.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <ballast/convert.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "quantize/rows.h"
#include "scheme/decoded_source.h"
#include "scheme/foreign.h"
#include "scheme/model_reader.h"
#include "scheme/reader.h"
#include "scheme/scheme.h"
#include "scheme/time_aware.h"
#include "source/uri.h"

namespace ballast {

struct Weights::State {
  std::unique_ptr<WeightsReader> reader;
};

Weights::Weights(std::unique_ptr<State> state) : state_(std::move(state)) {}
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;
Weights::~Weights() = default;

const WeightsReader& reader_of(const Weights& weights) { return *weights.state_->reader; }

Result<Weights> Weights::open(const std::string& path, const OpenOptions& options) {
  Place place = TRY(find_place(path, options));
  if (is_parquet_model(place)) {
    return Weights(std::make_unique<State>(TRY(open_parquet_reader(path, std::move(*place.folder), options))));
  }
  return from_model(TRY(ModelAccess::open(path, std::move(place), options)));
}

Result<Model> open_stored(const std::string& path, const OpenOptions& options) {
  Place place = TRY(find_place(path, options));
  if (!is_parquet_model(place)) return ModelAccess::open(path, std::move(place), options);
  return decode(Weights(std::make_unique<Weights::State>(TRY(open_parquet_reader(path, std::move(*place.folder), options)))));
}

Result<Weights> Weights::from_model(Model model) {
  const std::vector<Declared> declared = TRY(find_declared(model));
  for (const Scheme* const scheme : all_schemes()) {
    if (auto reader = TRY(scheme->open(model, declared))) return Weights(std::make_unique<State>(std::move(reader)));
  }
  TRY(refuse_foreign(model));
  return Weights(std::make_unique<State>(open_plain_reader(std::move(model))));
}

Weights Weights::as_stored(Model model) { return Weights(std::make_unique<State>(open_plain_reader(std::move(model)))); }

const std::string& Weights::path() const { return state_->reader->path(); }
const std::string& Weights::directory() const {
  static const std::string none;
  const Folder* const folder = state_->reader->folder();
  return folder != nullptr ? folder->path() : none;
}
std::string_view Weights::scheme() const { return state_->reader->scheme(); }
bool Weights::is_quantized() const { return scheme() != kPlain && std::ranges::any_of(weights(), &Weight::is_quantized); }
std::span<const Weight> Weights::weights() const { return state_->reader->weights(); }
const Weight* Weights::find(std::string_view name) const { return state_->reader->find(name); }
Modality Weights::modality() const { return state_->reader->modality(); }
const std::optional<ModelConfig>& Weights::config() const { return state_->reader->config(); }
std::span<const std::string> Weights::warnings() const { return state_->reader->warnings(); }
std::span<const std::string> Weights::dropped() const { return state_->reader->dropped(); }
const Model* Weights::stored() const { return state_->reader->stored(); }
std::optional<Model> Weights::take_stored() && { return state_->reader->take_stored(); }

std::vector<ModelFile> Weights::files() const {
  std::vector<ModelFile> files = state_->reader->files();
  for (ModelFile& file : files) file.path = without_secrets(file.path);
  return files;
}

std::uint64_t Weights::parameter_count() const {
  return std::accumulate(weights().begin(), weights().end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Weight& weight) { return sum + weight.elements(); });
}

Result<std::optional<std::vector<double>>> Weights::time_boundaries() const { return state_->reader->time_boundaries(); }

Result<std::optional<TimeAware>> Weights::time_aware() const {
  auto table = TRY(state_->reader->read_time_aware());
  if (!table) return std::nullopt;
  return make_time_aware(std::move(*table));
}

Result<void> Weights::read_rows(std::string_view name, std::uint64_t first, std::uint64_t count, DType dtype,
                                std::span<std::byte> out) const {
  const Weight* const weight = find(name);
  if (weight == nullptr || !weight->is_quantized()) {
    return fail(Errc::kNotFound, "{}: no quantized weight {}", shown(path()), quote(name));
  }
  if (info(dtype).kind != NumberKind::kFloat || bits(dtype) < 16) {
    return fail(Errc::kInvalidArgument, "{}: {} can be decoded to F64, F32, F16 or BF16, not {}", shown(path()), quote(name),
                ballast::name(dtype));
  }
  if (first > weight->rows || count > weight->rows - first) {
    return fail(Errc::kInvalidArgument, "{}: weight {} has {} rows, cannot read {} from row {} on", shown(path()), quote(name),
                weight->rows, count, first);
  }
  const std::uint64_t bytes = count * (weight->elements() / weight->rows) * bits(dtype) / 8;
  if (out.size() != bytes) {
    return fail(Errc::kInvalidArgument, "{}: {} rows of {} take {} bytes as {}, the buffer has {}", shown(path()), count,
                quote(name), bytes, ballast::name(dtype), out.size());
  }
  return state_->reader->read_rows(*weight, first, count, dtype, out);
}

Result<Tensor> Weights::read(std::string_view name, DType dtype) const {
  constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 18;
  const Weight* const weight = find(name);
  if (weight == nullptr) {
    return fail(Errc::kNotFound, "{}: no weight {} among {}{}", shown(path()), quote(name), weights().size(),
                did_you_mean(name, weights()));
  }
  if (!weight->is_quantized() && stored() != nullptr) return stored()->read_as(name, dtype);
  const auto all_bits = checked_mul(weight->elements(), bits(dtype));
  if (!all_bits)
    return fail(Errc::kUnsupported, "{}: {} values of {} do not fit in memory", shown(path()), weight->elements(), quote(name));
  Tensor out(weight->name, dtype, weight->shape, *all_bits / 8);
  if (!weight->is_quantized()) {
    Tensor raw(weight->name, weight->dtype, weight->shape, weight->bytes);
    TRY(state_->reader->read_bytes(*weight, 0, raw.bytes()));
    const ConversionLoss loss = TRY(convert_values(weight->dtype, raw.bytes(), dtype, out.bytes()));
    if (loss.count == 0) return out;
    return fail(Errc::kUnsupported, "{}: tensor {}: {} values do not fit {}, the first at {}", shown(path()), quote(name),
                loss.count, ballast::name(dtype), loss.first);
  }
  const std::uint64_t columns = weight->elements() / weight->rows;
  const std::uint64_t row_bytes = columns * bits(dtype) / 8;
  std::uint64_t most = std::max<std::uint64_t>(kPieceValues / columns, 1);
  if (state_->reader->is_transposed(*weight)) {
    const std::uint64_t share = (weight->rows + thread_count(0) - 1) / thread_count(0);
    most = std::max(most, std::min(rows_of_block(columns), share));
  }
  TRY(try_parallel((weight->rows + most - 1) / most, 0, [&](unsigned, std::size_t i) {
    const std::uint64_t first = i * most;
    const std::uint64_t count = std::min(most, weight->rows - first);
    return read_rows(name, first, count, dtype, out.bytes().subspan(first * row_bytes, count * row_bytes));
  }));
  return out;
}

Result<Model> decode(Weights weights, std::optional<DType> dtype) {
  // A config may declare a quantization that no weight has.
  if (!weights.is_quantized() && weights.stored() != nullptr) return *std::move(weights).take_stored();
  return open_decoded(std::move(weights), {.dtype = dtype});
}

}  // namespace ballast
