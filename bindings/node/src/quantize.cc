#include "quantize.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include <ballast/quantize.h>

#include "addon.h"
#include "errors.h"
#include "model.h"
#include "tokens.h"
#include "values.h"
#include "write.h"

namespace ballast::node {
namespace {

// [[name, "word", text] or [name, "list", texts] or [name, "pairs", pairs], …]
ConfigFields fields_of(const Napi::Value& value) {
  const auto given = value.As<Napi::Array>();
  ConfigFields fields;
  for (std::uint32_t i = 0; i < given.Length(); ++i) {
    const auto field = given.Get(i).As<Napi::Array>();
    const Napi::Value kind = field.Get(1U);
    const Napi::Value content = field.Get(2U);
    ConfigValue& made = fields[text_of(field.Get(0U))];
    if (text_of(kind) == "word") {
      made = text_of(content);
    } else if (text_of(kind) == "list") {
      made = texts_of(content);
    } else {
      const auto pairs = pairs_of(content);
      made = std::map<std::string, std::string>(pairs.begin(), pairs.end());
    }
  }
  return fields;
}

void set_quality(Napi::Object& made, const Quality& quality) {
  const Napi::Env env = made.Env();
  made.Set("cosineSimilarity", Napi::Number::New(env, quality.cosine_similarity));
  made.Set("relativeRmse", Napi::Number::New(env, quality.relative_rmse));
  made.Set("sqnrDb", Napi::Number::New(env, quality.sqnr_db));
  made.Set("maxError", Napi::Number::New(env, quality.max_error));
}

Napi::Value number_or_null(Napi::Env env, const std::optional<double>& value) {
  return value ? Napi::Value(Napi::Number::New(env, *value)) : env.Null();
}

Napi::Object layer_value(Napi::Env env, const LayerReport& layer) {
  auto made = Napi::Object::New(env);
  made.Set("name", text_value(env, layer.name));
  made.Set("dtype", text_value(env, name(layer.dtype)));
  made.Set("shape", shape_value(env, layer.shape));
  made.Set("bits", count_value(env, layer.bits));
  made.Set("plannedBits", count_value(env, layer.planned_bits));
  made.Set("groupSize", count_value(env, layer.group_size));
  made.Set("parameters", count_value(env, layer.parameters));
  made.Set("bytes", count_value(env, layer.bytes));
  made.Set("method", text_value(env, layer.method));
  made.Set("equalized", Napi::Boolean::New(env, layer.equalized));
  set_quality(made, layer.quality);
  made.Set("outputError", number_or_null(env, layer.quality.output_error));
  made.Set("expectedError", number_or_null(env, layer.expected_error));
  return made;
}

Napi::Value calibration_value(Napi::Env env, const std::optional<CalibrationReport>& calibration) {
  if (!calibration) return env.Null();
  auto boundaries = Napi::Array::New(env, calibration->boundaries.size());
  for (std::uint32_t i = 0; i < calibration->boundaries.size(); ++i) boundaries.Set(i, calibration->boundaries[i]);
  auto made = Napi::Object::New(env);
  made.Set("covered", count_value(env, calibration->covered));
  made.Set("uncovered", texts_value(env, calibration->uncovered));
  made.Set("timesteps", count_value(env, calibration->timesteps));
  made.Set("recordedTimesteps", count_value(env, calibration->recorded_timesteps));
  made.Set("timeGroups", count_value(env, calibration->time_groups));
  made.Set("boundaries", boundaries);
  return made;
}

Napi::Value size_fit_value(Napi::Env env, const std::optional<SizeFitReport>& fit) {
  if (!fit) return env.Null();
  auto made = Napi::Object::New(env);
  made.Set("expectedBytes", count_value(env, fit->expected_bytes));
  made.Set("expectedError", Napi::Number::New(env, fit->expected_error));
  made.Set("error", number_or_null(env, fit->error));
  made.Set("errorOf", text_value(env, fit->of_outputs ? "outputs" : "weights"));
  made.Set("uniformBits", count_value(env, fit->uniform_bits));
  made.Set("uniformBytes", count_value(env, fit->uniform_bytes));
  made.Set("uniformError", Napi::Number::New(env, fit->uniform_error));
  return made;
}

Napi::Value report_value(Napi::Env env, const QuantizeReport& report) {
  auto layers = Napi::Array::New(env, report.layers.size());
  for (std::uint32_t i = 0; i < report.layers.size(); ++i) layers.Set(i, layer_value(env, report.layers[i]));
  auto made = Napi::Object::New(env);
  made.Set("layers", layers);
  made.Set("unquantized", count_value(env, report.unquantized));
  made.Set("files", texts_value(env, report.files));
  made.Set("sourceBytes", count_value(env, report.source_bytes));
  made.Set("bytes", count_value(env, report.bytes));
  made.Set("modelSizeMb", Napi::Number::New(env, static_cast<double>(report.bytes) / 1e6));
  made.Set("compressionRatio", Napi::Number::New(env, report.compression_ratio()));
  made.Set("bitsPerWeight", Napi::Number::New(env, report.bits_per_weight));
  made.Set("bitsPerWeightTotal", Napi::Number::New(env, report.bits_per_weight_total));
  set_quality(made, report.quality);
  made.Set("modality", modality_value(env, report.modality));
  made.Set("calibration", calibration_value(env, report.calibration));
  made.Set("sizeFit", size_fit_value(env, report.size_fit));
  made.Set("passed", Napi::Boolean::New(env, report.passed));
  made.Set("upToDate", Napi::Boolean::New(env, report.up_to_date));
  made.Set("notCopied", texts_value(env, report.not_copied));
  made.Set("notes", texts_value(env, report.notes));
  made.Set("warnings", texts_value(env, report.warnings));
  made.Set("leftOut", texts_value(env, report.left_out));
  if (!report.components.empty()) made.Set("components", components_value(env, report.components));
  return made;
}

// (source, directory, {config, calibration, calibrationTokens, lora, sync, resume, force}, progress)
Napi::Value quantize(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const std::array fields{fields_of(given.Get("config"))};
  const auto config = make_quantize_config(fields);
  if (!config) return throw_error(info.Env(), config.error());
  const QuantizeOptions options{.config = *config,
                                .calibration = text_of(given.Get("calibration")),
                                .loras = loras_of(given.Get("lora")),
                                .sync = flag(given, "sync"),
                                .resume = flag(given, "resume"),
                                .force = flag(given, "force")};
  const auto work = [source = NativeModel::source_of(info[0]), directory = text_of(info[1]), options,
                     given_tokens = given_tokens_of(given.Get("calibrationTokens")),
                     open = open_options(given)](Job& job) -> Result<QuantizeReport> {
    QuantizeOptions all = options;
    all.work = job.work();
    std::optional<TokenWindows> tokens;
    if (given_tokens) {
      auto opened = given_tokens->windows();
      if (!opened) return std::unexpected(std::move(opened.error()));
      tokens = spread_windows(std::move(*opened), options.config.calibration_samples);
      all.calibration_tokens = &*tokens;
    }
    if (source.path() == nullptr)
      return source.with(job, [&](const Model& model) { return quantize_model(model, directory, all); });
    OpenOptions from = open;
    from.stop = all.work.stop;
    return quantize_path(*source.path(), directory, all, from);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, report_value), info[3]);
}

// (original, quantized, {lora, minAccuracy, threads, component, variant}, progress)
Napi::Value validate(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const double min_accuracy = given.Get("minAccuracy").As<Napi::Number>().DoubleValue();
  const auto threads = static_cast<unsigned>(number(given, "threads"));
  const auto work = [source = NativeModel::source_of(info[0]), quantized = text_of(info[1]), min_accuracy, threads,
                     loras = loras_of(given.Get("lora")), open = open_options(given)](Job& job) {
    const ValidateOptions options{.loras = loras, .min_accuracy = min_accuracy, .work = job.work(threads)};
    OpenOptions from = open;
    from.stop = options.work.stop;
    if (source.path() != nullptr) return validate_path(*source.path(), quantized, options, from);
    return source.with(job, [&](const Model& model) { return validate_model(model, quantized, options); });
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, report_value), info[3]);
}

// (quantized, path, {dtype, format, maxShardSize, sync, force, threads, memoryLimit}, progress)
Napi::Value dequantize(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const DequantizeOptions options{.open = open_options(given),
                                  .dtype = dtype_of(given.Get("dtype")),
                                  .sink = {.format = format_of(given.Get("format")),
                                           .max_shard_bytes = number(given, "maxShardSize"),
                                           .sync = flag(given, "sync")},
                                  .force = flag(given, "force")};
  const auto work = [quantized = text_of(info[0]), path = text_of(info[1]), options,
                     threads = static_cast<unsigned>(number(given, "threads")),
                     memory_limit = number(given, "memoryLimit")](Job& job) {
    DequantizeOptions all = options;
    all.open.stop = [&job] { return job.is_stopped(); };
    all.work = job.work(threads, memory_limit);
    return dequantize_model(quantized, path, all);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, convert_report_value), info[3]);
}

}  // namespace

void define_quantize(Napi::Env env, Napi::Object& exports) {
  exports.Set("quantize", Napi::Function::New(env, &quantize));
  exports.Set("dequantize", Napi::Function::New(env, &dequantize));
  exports.Set("validate", Napi::Function::New(env, &validate));
}

}  // namespace ballast::node
