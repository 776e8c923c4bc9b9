#include "evaluate.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/calibrate.h>
#include <ballast/evaluate.h>
#include <ballast/tokens.h>

#include "addon.h"
#include "errors.h"
#include "model.h"
#include "tokens.h"
#include "values.h"

namespace ballast::node {
namespace {

using Shared = std::shared_ptr<const Opened>;

// An open model, or one at a path with its weights decoded.
Result<Shared> open_language_model(Job& job, const Source& source, const OpenOptions& options) {
  if (source.path() != nullptr)
    return open_as(job, {.path = *source.path(), .decode = true, .dtype = DType::kF32, .options = options});
  const auto& opened = std::get<Shared>(source.place);
  if (opened == nullptr) return std::unexpected(Error{.code = Errc::kInvalidArgument, .message = "the model is closed"});
  return opened;
}

Napi::Array numbers_value(Napi::Env env, const std::vector<double>& numbers) {
  auto made = Napi::Array::New(env, numbers.size());
  for (std::uint32_t i = 0; i < numbers.size(); ++i) made.Set(i, Napi::Number::New(env, numbers[i]));
  return made;
}

Napi::Value against_value(Napi::Env env, const std::optional<EvaluationAgainst>& against) {
  if (!against) return env.Null();
  auto made = Napi::Object::New(env);
  made.Set("perplexity", Napi::Number::New(env, against->perplexity));
  made.Set("perplexityRatio", Napi::Number::New(env, against->perplexity_ratio));
  made.Set("klMean", Napi::Number::New(env, against->kl_mean));
  made.Set("klStderr", Napi::Number::New(env, against->kl_stderr));
  made.Set("klP99", Napi::Number::New(env, against->kl_p99));
  made.Set("top1Agreement", Napi::Number::New(env, against->top1_agreement));
  made.Set("worstLayer", count_value(env, against->worst_layer));
  made.Set("layerErrors", numbers_value(env, against->layer_errors));
  made.Set("kl", numbers_value(env, against->kl));
  return made;
}

// A result, with what is not in it.
template <class Report>
struct Made {
  Report report;
  std::uint64_t unused = 0;
  std::vector<std::string> warnings;
};

template <class Report>
Result<Made<Report>> made_of(Result<Report> report, const TokenWindows& tokens, const Model& model) {
  if (!report) return std::unexpected(std::move(report.error()));
  const auto warnings = model.warnings();
  return Made<Report>{.report = *std::move(report), .unused = tokens.unused, .warnings = {warnings.begin(), warnings.end()}};
}

Napi::Value evaluation_value(Napi::Env env, const Made<Evaluation>& evaluated) {
  const Evaluation& found = evaluated.report;
  auto made = Napi::Object::New(env);
  made.Set("perplexity", Napi::Number::New(env, found.perplexity));
  made.Set("perplexityStderr", Napi::Number::New(env, found.perplexity_stderr));
  made.Set("loss", Napi::Number::New(env, found.loss));
  made.Set("tokens", count_value(env, found.tokens));
  made.Set("windows", count_value(env, found.windows));
  made.Set("length", count_value(env, found.length));
  made.Set("unusedTokens", count_value(env, evaluated.unused));
  made.Set("against", against_value(env, found.against));
  made.Set("warnings", texts_value(env, evaluated.warnings));
  return made;
}

struct EvaluateRequest {
  GivenTokens tokens;
  Source model;
  std::optional<Source> against;
  OpenOptions open;
  unsigned threads;
  std::uint64_t memory_limit;
};

Result<Made<Evaluation>> evaluate_as(Job& job, const EvaluateRequest& request) {
  const auto tokens = request.tokens.windows();
  if (!tokens) return std::unexpected(tokens.error());
  const auto model = open_language_model(job, request.model, request.open);
  if (!model) return std::unexpected(model.error());
  const Visit visit(*(*model)->users, job);
  const WorkOptions work = job.work(request.threads, request.memory_limit);
  if (!request.against) return made_of(evaluate_model((*model)->model, *tokens, nullptr, work), *tokens, (*model)->model);
  const auto original = open_language_model(job, *request.against, request.open);
  if (!original) return std::unexpected(original.error());
  const Visit visit_original(*(*original)->users, job);
  return made_of(evaluate_model((*model)->model, *tokens, &(*original)->model, work), *tokens, (*model)->model);
}

// (model, against or undefined, {tokens, threads, memoryLimit, component, variant}, progress)
Napi::Value evaluate(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const auto against = info[1].IsUndefined() ? std::nullopt : std::optional(NativeModel::source_of(info[1]));
  const EvaluateRequest request{.tokens = *given_tokens_of(given.Get("tokens")),
                                .model = NativeModel::source_of(info[0]),
                                .against = against,
                                .open = open_options(given),
                                .threads = static_cast<unsigned>(number(given, "threads")),
                                .memory_limit = number(given, "memoryLimit")};
  const auto work = [request](Job& job) { return evaluate_as(job, request); };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, evaluation_value), info[3]);
}

Napi::Value calibrated_value(Napi::Env env, const Made<CalibrateReport>& calibrated) {
  const CalibrateReport& report = calibrated.report;
  auto made = Napi::Object::New(env);
  made.Set("weights", count_value(env, report.weights));
  made.Set("tokens", count_value(env, report.tokens));
  made.Set("windows", count_value(env, report.windows));
  made.Set("layers", count_value(env, report.layers));
  made.Set("resumedLayers", count_value(env, report.resumed_layers));
  made.Set("unusedTokens", count_value(env, calibrated.unused));
  made.Set("bytes", count_value(env, report.bytes));
  made.Set("warnings", texts_value(env, calibrated.warnings));
  return made;
}

// (model, path, {tokens, samples, hessian, resume, sync, threads, memoryLimit, component, variant}, progress)
Napi::Value calibrate(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const CalibrateOptions options{.hessian = flag(given, "hessian"), .resume = flag(given, "resume"), .sync = flag(given, "sync")};
  const auto work = [source = NativeModel::source_of(info[0]), path = text_of(info[1]), options,
                     given_tokens = *given_tokens_of(given.Get("tokens")), samples = number(given, "samples"),
                     open = open_options(given), threads = static_cast<unsigned>(number(given, "threads")),
                     memory_limit = number(given, "memoryLimit")](Job& job) -> Result<Made<CalibrateReport>> {
    auto all = given_tokens.windows();
    if (!all) return std::unexpected(std::move(all.error()));
    const TokenWindows tokens = spread_windows(std::move(*all), samples);
    const auto model = open_language_model(job, source, open);
    if (!model) return std::unexpected(model.error());
    const Visit visit(*(*model)->users, job);
    CalibrateOptions with_work = options;
    with_work.work = job.work(threads, memory_limit);
    return made_of(calibrate_model((*model)->model, tokens, path, with_work), tokens, (*model)->model);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, calibrated_value), info[3]);
}

}  // namespace

void define_evaluate(Napi::Env env, Napi::Object& exports) {
  exports.Set("evaluate", Napi::Function::New(env, &evaluate));
  exports.Set("calibrate", Napi::Function::New(env, &calibrate));
}

}  // namespace ballast::node
