#include "inspect.h"

#include <utility>

#include <ballast/text.h>

#include "values.h"

namespace ballast::node {
namespace {

using TotalsByKey = std::map<std::string, Totals>;

void add(Totals& totals, std::uint64_t parameters, std::uint64_t bytes) {
  ++totals.tensors;
  totals.parameters += parameters;
  totals.bytes += bytes;
}

std::uint64_t elements(const InspectedTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : tensor.shape) count *= dim;  // opening the model checked that it fits
  return count;
}

// The keys of `quantization` in `ballast inspect --json`.
std::string storage_key(const Weight& weight) { return weight.is_quantized() ? storage_name(weight.storage) : "kept"; }

TotalsByKey totals_by_storage(const Weights& weights) {
  TotalsByKey totals;
  for (const Weight& weight : weights.weights()) add(totals[storage_key(weight)], weight.elements(), weight.bytes);
  return totals;
}

Result<void> describe_quantization(const Weights& weights, Inspection& found) {
  auto boundaries = weights.time_boundaries();
  if (!boundaries) return std::unexpected(std::move(boundaries.error()));
  found.quantization = totals_by_storage(weights);
  found.time_boundaries = *std::move(boundaries);
  return {};
}

Inspection describe_stored(const Model& model) {
  Inspection found{.path = model.path(),
                   .format = std::string(name(model.format())),
                   .files = {model.files().begin(), model.files().end()},
                   .metadata = model.metadata(),
                   .modality = model.modality(),
                   .config = model.config(),
                   .warnings = {model.warnings().begin(), model.warnings().end()}};
  for (const TensorInfo& tensor : model.tensors()) {
    found.tensors.push_back({.name = std::string(tensor.name),
                             .dtype = tensor.dtype,
                             .shape = {tensor.shape.begin(), tensor.shape.end()},
                             .bytes = tensor.bytes(),
                             .file = model.files()[tensor.file].path,
                             .begin = tensor.begin});
  }
  return found;
}

Inspection describe_parquet(const Weights& weights) {
  Inspection found{.path = without_secrets(weights.path()),
                   .format = std::string(weights.scheme()),
                   .files = weights.files(),
                   .modality = weights.modality(),
                   .config = weights.config()};
  for (const Weight& weight : weights.weights()) {
    found.tensors.push_back({.name = weight.name,
                             .dtype = weight.dtype,
                             .shape = weight.shape,
                             .bytes = weight.bytes,
                             .file = weight.file,
                             .storage = weight.storage});
  }
  return found;
}

// Quantized weights are measured after decoding, anything else as it is stored.
Result<void> measure(Job& job, Weights weights, unsigned threads, Inspection& found) {
  found.has_weight_stats = weights.is_quantized();
  std::vector<std::string_view> names;
  if (found.has_weight_stats) {
    for (const Weight& weight : found.weights) names.push_back(weight.name);
  } else {
    for (const InspectedTensor& tensor : found.tensors) names.push_back(tensor.name);
  }
  const auto model = decode(std::move(weights));
  if (!model) return std::unexpected(model.error());
  auto stats = compute_stats(*model, names, {.work = job.work(threads)});
  if (!stats) return std::unexpected(std::move(stats.error()));
  found.stats = *std::move(stats);
  return {};
}

Result<Inspection> describe(const Weights& weights) {
  const Model* const stored = weights.stored();
  Inspection found = stored == nullptr ? describe_parquet(weights) : describe_stored(*stored);
  found.weights.assign(weights.weights().begin(), weights.weights().end());
  if (weights.scheme() == "plain") return found;
  if (auto done = describe_quantization(weights, found); !done) return std::unexpected(std::move(done.error()));
  return found;
}

// Weights, or the stored tensors of a model that cannot be decoded, with the reason.
Result<Weights> open_weights(const std::string& path, const OpenOptions& options, std::string& reason) {
  auto weights = Weights::open(path, options);
  if (weights) return weights;
  const Errc code = weights.error().code;
  if (code != Errc::kUnsupported && code != Errc::kCorrupt) return weights;
  auto stored = Model::open(path, options);
  if (!stored) return weights;
  reason = std::move(weights.error().message);
  return Weights::as_stored(std::move(*stored));
}

Napi::Object totals_value(Napi::Env env, const TotalsByKey& by_key) {
  auto made = Napi::Object::New(env);
  for (const auto& [key, totals] : by_key) {
    auto each = Napi::Object::New(env);
    each.Set("tensors", count_value(env, totals.tensors));
    each.Set("parameters", count_value(env, totals.parameters));
    each.Set("bytes", count_value(env, totals.bytes));
    made.Set(key, each);
  }
  return made;
}

Napi::Value stats_value(Napi::Env env, const std::optional<TensorStats>& stats) {
  if (!stats) return env.Null();
  auto histogram = Napi::Array::New(env, stats->histogram.size());
  for (std::uint32_t i = 0; i < stats->histogram.size(); ++i) histogram.Set(i, count_value(env, stats->histogram[i]));
  auto made = Napi::Object::New(env);
  made.Set("count", count_value(env, stats->count));
  made.Set("zeros", count_value(env, stats->zeros));
  made.Set("nan", count_value(env, stats->nans));
  made.Set("inf", count_value(env, stats->infinities));
  made.Set("min", Napi::Number::New(env, stats->min));
  made.Set("max", Napi::Number::New(env, stats->max));
  made.Set("mean", Napi::Number::New(env, stats->mean));
  made.Set("std", Napi::Number::New(env, stats->deviation));
  made.Set("l2Norm", Napi::Number::New(env, stats->l2_norm));
  made.Set("histogram", histogram);
  return made;
}

Napi::Object tensor_value(Napi::Env env, const InspectedTensor& tensor) {
  auto made = Napi::Object::New(env);
  made.Set("name", text_value(env, tensor.name));
  made.Set("dtype", text_value(env, name(tensor.dtype)));
  made.Set("shape", shape_value(env, tensor.shape));
  made.Set("bytes", count_value(env, tensor.bytes));
  made.Set("file", text_value(env, tensor.file));
  if (tensor.begin) {
    auto offsets = Napi::Array::New(env, 2);
    offsets.Set(0U, count_value(env, *tensor.begin));
    offsets.Set(1U, count_value(env, *tensor.begin + tensor.bytes));
    made.Set("dataOffsets", offsets);
  }
  if (tensor.storage) {
    made.Set("bits", count_value(env, tensor.storage->bits));
    made.Set("groupSize", count_value(env, tensor.storage->group_size));
    made.Set("equalized", Napi::Boolean::New(env, tensor.storage->equalized));
  }
  return made;
}

Napi::Object weight_value(Napi::Env env, const Weight& weight) {
  auto made = Napi::Object::New(env);
  made.Set("name", text_value(env, weight.name));
  made.Set("dtype", text_value(env, name(weight.dtype)));
  made.Set("shape", shape_value(env, weight.shape));
  made.Set("scheme", text_value(env, weight.storage.scheme));
  made.Set("mode", weight.storage.mode.empty() ? env.Null() : text_value(env, weight.storage.mode));
  made.Set("bits", count_value(env, weight.storage.bits));
  made.Set("groupSize", count_value(env, weight.storage.group_size));
  made.Set("tensors", texts_value(env, weight.tensors));
  made.Set("bytes", count_value(env, weight.bytes));
  return made;
}

Napi::Array weights_value(Napi::Env env, const Inspection& found) {
  auto made = Napi::Array::New(env, found.weights.size());
  for (std::uint32_t i = 0; i < found.weights.size(); ++i) {
    auto weight = weight_value(env, found.weights[i]);
    if (found.stats && found.has_weight_stats) weight.Set("stats", stats_value(env, (*found.stats)[i]));
    made.Set(i, weight);
  }
  return made;
}

Napi::Array files_value(Napi::Env env, const Inspection& found) {
  auto made = Napi::Array::New(env, found.files.size());
  for (std::uint32_t i = 0; i < found.files.size(); ++i) {
    auto file = Napi::Object::New(env);
    file.Set("path", text_value(env, found.files[i].path));
    file.Set("size", count_value(env, found.files[i].size));
    if (found.format != "parquet") file.Set("dataStart", count_value(env, found.files[i].data_start));
    made.Set(i, file);
  }
  return made;
}

Napi::Array tensors_value(Napi::Env env, const Inspection& found) {
  auto made = Napi::Array::New(env, found.tensors.size());
  for (std::uint32_t i = 0; i < found.tensors.size(); ++i) {
    auto tensor = tensor_value(env, found.tensors[i]);
    if (found.stats && !found.has_weight_stats) tensor.Set("stats", stats_value(env, (*found.stats)[i]));
    made.Set(i, tensor);
  }
  return made;
}

}  // namespace

Result<Inspection> inspect_model(Job& job, const std::string& path, const InspectOptions& options) {
  OpenOptions open = options.open;
  open.stop = [&job] { return job.is_stopped(); };
  std::string reason;
  auto weights = open_weights(path, open, reason);
  if (!weights) return std::unexpected(std::move(weights.error()));
  auto found = describe(*weights);
  if (!found) return found;
  if (!reason.empty()) found->warnings.push_back(std::move(reason));
  if (!options.stats) return found;
  if (auto done = measure(job, *std::move(weights), options.threads, *found); !done) {
    return std::unexpected(std::move(done.error()));
  }
  return found;
}

// `config` is {json, usual} or null; lib/examine.ts parses it.
Napi::Value inspection_value(Napi::Env env, const Inspection& found) {
  Totals all;
  TotalsByKey dtypes;
  for (const InspectedTensor& tensor : found.tensors) {
    add(all, elements(tensor), tensor.bytes);
    add(dtypes[std::string(name(tensor.dtype))], elements(tensor), tensor.bytes);
  }
  if (!found.weights.empty()) all.parameters = 0;
  for (const Weight& weight : found.weights) all.parameters += weight.elements();
  auto boundaries = Napi::Array::New(env);
  for (const double boundary : found.time_boundaries.value_or(std::vector<double>()))
    boundaries.Set(boundaries.Length(), boundary);
  auto made = Napi::Object::New(env);
  made.Set("path", text_value(env, found.path));
  made.Set("format", text_value(env, found.format));
  made.Set("files", files_value(env, found));
  made.Set("tensorCount", count_value(env, all.tensors));
  made.Set("parameterCount", count_value(env, all.parameters));
  made.Set("dataBytes", count_value(env, all.bytes));
  made.Set("dtypes", totals_value(env, dtypes));
  made.Set("quantization", found.quantization ? totals_value(env, *found.quantization) : env.Null());
  made.Set("timeBoundaries", found.time_boundaries ? Napi::Value(boundaries) : env.Null());
  made.Set("metadata", metadata_value(env, found.metadata));
  made.Set("modality", modality_value(env, found.modality));
  made.Set("config", config_value(env, found.config));
  made.Set("warnings", texts_value(env, found.warnings));
  made.Set("weights", weights_value(env, found));
  made.Set("tensors", tensors_value(env, found));
  return made;
}

}  // namespace ballast::node
