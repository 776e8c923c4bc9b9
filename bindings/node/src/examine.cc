#include "examine.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ballast/diff.h>
#include <ballast/verify.h>

#include "addon.h"
#include "inspect.h"
#include "model.h"
#include "values.h"

namespace ballast::node {
namespace {

Napi::Value verify_report_value(Napi::Env env, const VerifyReport& report) {
  auto defects = Napi::Array::New(env, report.defects.size());
  for (std::uint32_t i = 0; i < report.defects.size(); ++i) {
    auto defect = Napi::Object::New(env);
    defect.Set("check", text_value(env, report.defects[i].check));
    defect.Set("message", text_value(env, report.defects[i].message));
    defects.Set(i, defect);
  }
  auto files = Napi::Array::New(env, report.files.size());
  for (std::uint32_t i = 0; i < report.files.size(); ++i) {
    const VerifiedFile& from = report.files[i];
    auto file = Napi::Object::New(env);
    file.Set("path", text_value(env, from.path));
    file.Set("size", count_value(env, from.size));
    file.Set("tensors", count_value(env, from.tensors));
    file.Set("sha256", from.sha256.empty() ? env.Null() : text_value(env, from.sha256));
    files.Set(i, file);
  }
  auto made = Napi::Object::New(env);
  made.Set("ok", Napi::Boolean::New(env, report.ok()));
  made.Set("checks", texts_value(env, report.checks));
  made.Set("defects", defects);
  made.Set("skipped", texts_value(env, report.skipped));
  made.Set("warnings", texts_value(env, report.warnings));
  made.Set("files", files);
  made.Set("tensors", count_value(env, report.tensors));
  made.Set("bytes", count_value(env, report.bytes));
  if (!report.components.empty()) made.Set("components", texts_value(env, report.components));
  return made;
}

// (path, {values, sha256, threads, component, variant}, progress)
Napi::Value verify(const Napi::CallbackInfo& info) {
  const auto given = info[1].As<Napi::Object>();
  const auto work = [path = text_of(info[0]), values = flag(given, "values"), sha256 = flag(given, "sha256"),
                     threads = static_cast<unsigned>(number(given, "threads")), open = open_options(given)](Job& job) {
    VerifyOptions options{.open = open, .values = values, .sha256 = sha256, .work = job.work(threads)};
    options.open.stop = [&job] { return job.is_stopped(); };
    return verify_model(path, options);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, verify_report_value), info[2]);
}

// (path, {stats, threads, component, variant}, progress)
Napi::Value inspect(const Napi::CallbackInfo& info) {
  const auto given = info[1].As<Napi::Object>();
  const InspectOptions options{
      .stats = flag(given, "stats"), .threads = static_cast<unsigned>(number(given, "threads")), .open = open_options(given)};
  const auto work = [path = text_of(info[0]), options](Job& job) { return inspect_model(job, path, options); };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, inspection_value), info[2]);
}

// One of two models to compare. A quantized model is compared by its weights, decoded when they are read; one that no scheme can
// decode, by its stored tensors, with a warning.
struct Side {
  std::shared_ptr<const Opened> opened;
  std::string warning;
};

Result<Side> open_side(Job& job, const Source& source) {
  const auto* const path = std::get_if<std::string>(&source.place);
  if (path == nullptr) {
    const auto& opened = std::get<std::shared_ptr<const Opened>>(source.place);
    if (opened == nullptr) return std::unexpected(Error{.code = Errc::kInvalidArgument, .message = "the model is closed"});
    return Side{.opened = opened};
  }
  auto decoded = open_as(job, {.path = *path, .decode = true, .options = {}});
  if (decoded) return Side{.opened = *std::move(decoded)};
  if (decoded.error().code != Errc::kUnsupported) return std::unexpected(std::move(decoded.error()));
  auto stored = open_as(job, {.path = *path, .options = {}});
  if (!stored) return std::unexpected(std::move(decoded.error()));
  return Side{.opened = *std::move(stored), .warning = decoded.error().message + "; the stored tensors are compared"};
}

struct Comparison {
  DiffReport report;
  std::vector<std::string> warnings;
};

Result<Comparison> compare(Job& job, const Source& first, const Source& second, unsigned threads) {
  const auto a = open_side(job, first);
  if (!a) return std::unexpected(a.error());
  const auto b = open_side(job, second);
  if (!b) return std::unexpected(b.error());
  const Visit visit_a(*a->opened->users, job);
  const Visit visit_b(*b->opened->users, job);
  auto report = diff_models(a->opened->model, b->opened->model, job.work(threads));
  if (!report) return std::unexpected(std::move(report.error()));
  Comparison made{.report = *std::move(report)};
  for (const Side* const side : {&*a, &*b}) {
    if (!side->warning.empty()) made.warnings.push_back(side->warning);
    const auto opening = side->opened->model.warnings();
    made.warnings.insert(made.warnings.end(), opening.begin(), opening.end());
  }
  return made;
}

Napi::Array pair_value(Napi::Env env, const Napi::Value& a, const Napi::Value& b) {
  auto made = Napi::Array::New(env, 2);
  made.Set(0U, a);
  made.Set(1U, b);
  return made;
}

Napi::Object difference_value(Napi::Env env, const TensorDifference& tensor) {
  auto made = Napi::Object::New(env);
  made.Set("name", text_value(env, tensor.name));
  made.Set("dtype", pair_value(env, text_value(env, name(tensor.dtype_a)), text_value(env, name(tensor.dtype_b))));
  made.Set("shape", pair_value(env, shape_value(env, tensor.shape_a), shape_value(env, tensor.shape_b)));
  const auto& values = tensor.values;
  made.Set("differentValues", values ? count_value(env, values->count) : env.Null());
  made.Set("values", values ? count_value(env, values->values) : env.Null());
  made.Set("firstDifference", values && values->count > 0 ? count_value(env, values->first) : env.Null());
  made.Set("maxDifference", values ? Napi::Value(Napi::Number::New(env, values->max_difference)) : env.Null());
  return made;
}

Napi::Value diff_report_value(Napi::Env env, const Comparison& comparison) {
  const DiffReport& report = comparison.report;
  auto changed = Napi::Array::New(env, report.changed.size());
  for (std::uint32_t i = 0; i < report.changed.size(); ++i) changed.Set(i, difference_value(env, report.changed[i]));
  auto made = Napi::Object::New(env);
  made.Set("equal", Napi::Boolean::New(env, report.equal()));
  made.Set("same", count_value(env, report.same));
  made.Set("onlyInA", texts_value(env, report.only_a));
  made.Set("onlyInB", texts_value(env, report.only_b));
  made.Set("changed", changed);
  made.Set("metadata", texts_value(env, report.metadata));
  made.Set("warnings", texts_value(env, comparison.warnings));
  return made;
}

// (a, b, {threads}, progress)
Napi::Value diff(const Napi::CallbackInfo& info) {
  const auto threads = static_cast<unsigned>(number(info[2].As<Napi::Object>(), "threads"));
  const auto work = [a = NativeModel::source_of(info[0]), b = NativeModel::source_of(info[1]), threads](Job& job) {
    return compare(job, a, b, threads);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, diff_report_value), info[3]);
}

}  // namespace

void define_examine(Napi::Env env, Napi::Object& exports) {
  exports.Set("verify", Napi::Function::New(env, &verify));
  exports.Set("inspect", Napi::Function::New(env, &inspect));
  exports.Set("diff", Napi::Function::New(env, &diff));
}

}  // namespace ballast::node
