#include "evaluate.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <ballast/calibrate.h>
#include <ballast/evaluate.h>
#include <ballast/tokens.h>
#include <ballast/weights.h>

#include "bytes.h"
#include "errors.h"
#include "long_work.h"
#include "model.h"
#include "values.h"

namespace ballast::python {
namespace {

namespace nb = nanobind;

// An open model, or one to open from a path with its weights decoded.
class LanguageModel {
 public:
  LanguageModel(const nb::object& source, OpenOptions options) : options_(std::move(options)) {
    if (nb::isinstance<OpenModel>(source)) {
      shared_ = nb::cast<const OpenModel&>(source).shared();
    } else {
      path_ = nb::cast<FsPath>(source).get();
    }
  }

  // Without the GIL.
  Result<void> open() {
    if (shared_ != nullptr) return {};
    auto weights = ballast::Weights::open(path_, options_);
    if (!weights) return std::unexpected(std::move(weights.error()));
    auto model = decode(std::move(*weights), DType::kF32);
    if (!model) return std::unexpected(std::move(model.error()));
    shared_ = std::make_shared<const Model>(std::move(*model));
    return {};
  }

  const Model& get() const { return *shared_; }

 private:
  std::shared_ptr<const Model> shared_;
  std::string path_;
  OpenOptions options_;
};

std::vector<std::string> warnings_of(const LanguageModel& model) {
  const auto warnings = model.get().warnings();
  return {warnings.begin(), warnings.end()};
}

nb::object describe(const std::optional<EvaluationAgainst>& against) {
  if (!against) return nb::none();
  nb::dict made;
  made["perplexity"] = against->perplexity;
  made["perplexity_ratio"] = against->perplexity_ratio;
  made["kl_mean"] = against->kl_mean;
  made["kl_stderr"] = against->kl_stderr;
  made["kl_p99"] = against->kl_p99;
  made["top1_agreement"] = against->top1_agreement;
  made["worst_layer"] = against->worst_layer;
  made["layer_errors"] = against->layer_errors;
  made["kl"] = against->kl;
  return made;
}

// `model` and `against` are open models or paths; `against` may be None.
nb::dict evaluate(const nb::object& model, const TokenWindows& tokens, const nb::object& against, unsigned threads,
                  std::uint64_t memory_limit, const std::string& component, const std::string& variant, nb::object progress) {
  LongWork work(std::move(progress));
  const WorkOptions options = work.options(threads, memory_limit);
  const OpenOptions open{.component = component, .variant = variant, .stop = options.stop};
  LanguageModel subject(model, open);
  std::optional<LanguageModel> original;
  if (!against.is_none()) original.emplace(against, open);
  const Evaluation found = work.run([&]() -> Result<Evaluation> {
    if (auto opened = subject.open(); !opened) return std::unexpected(std::move(opened.error()));
    if (!original) return evaluate_model(subject.get(), tokens, nullptr, options);
    if (auto opened = original->open(); !opened) return std::unexpected(std::move(opened.error()));
    return evaluate_model(subject.get(), tokens, &original->get(), options);
  });
  nb::dict made;
  made["perplexity"] = found.perplexity;
  made["perplexity_stderr"] = found.perplexity_stderr;
  made["loss"] = found.loss;
  made["tokens"] = found.tokens;
  made["windows"] = found.windows;
  made["length"] = found.length;
  made["unused_tokens"] = tokens.unused;
  made["against"] = describe(found.against);
  made["warnings"] = warnings_of(subject);
  return made;
}

// `model` is an open model or a path.
nb::dict calibrate(const nb::object& model, const FsPath& path, const TokenWindows& tokens, bool hessian, bool resume, bool sync,
                   unsigned threads, std::uint64_t memory_limit, const std::string& component, const std::string& variant,
                   nb::object progress) {
  LongWork work(std::move(progress));
  const CalibrateOptions options{.hessian = hessian, .resume = resume, .sync = sync, .work = work.options(threads, memory_limit)};
  LanguageModel subject(model, {.component = component, .variant = variant, .stop = options.work.stop});
  const CalibrateReport report = work.run([&]() -> Result<CalibrateReport> {
    if (auto opened = subject.open(); !opened) return std::unexpected(std::move(opened.error()));
    return calibrate_model(subject.get(), tokens, path.get(), options);
  });
  nb::dict made;
  made["path"] = path_text(path.get());
  made["weights"] = report.weights;
  made["tokens"] = report.tokens;
  made["windows"] = report.windows;
  made["layers"] = report.layers;
  made["resumed_layers"] = report.resumed_layers;
  made["unused_tokens"] = tokens.unused;
  made["bytes"] = report.bytes;
  made["warnings"] = warnings_of(subject);
  return made;
}

// `buffer` has the ids as uint32.
TokenWindows make_tokens(const nb::object& buffer, const std::vector<std::uint64_t>& shape, std::uint64_t length,
                         const FsPath& name) {
  const HeldBuffer held(buffer);
  std::vector<std::uint32_t> ids(held.bytes().size() / sizeof(std::uint32_t));
  if (!ids.empty()) std::memcpy(ids.data(), held.bytes().data(), ids.size() * sizeof(std::uint32_t));
  return take(make_windows(std::move(ids), shape, length, name.get()));
}

}  // namespace

void bind_evaluate(nb::module_& module) {
  nb::class_<TokenWindows>(module, "TokenWindows")
      .def_ro("length", &TokenWindows::length)
      .def_ro("unused", &TokenWindows::unused)
      .def_prop_ro("count", &TokenWindows::count);
  module.def("read_tokens", [](const FsPath& path, std::uint64_t length) {
    return take(released([&] { return read_tokens(path.get(), length); }));
  });
  module.def("make_tokens", &make_tokens);
  module.def("spread_tokens", [](const TokenWindows& tokens, std::uint64_t samples) { return spread_windows(tokens, samples); });
  module.def("evaluate", &evaluate, nb::arg("model"), nb::arg("tokens"), nb::kw_only(), nb::arg("against").none(),
             nb::arg("threads"), nb::arg("memory_limit"), nb::arg("component"), nb::arg("variant"), nb::arg("progress").none());
  module.def("calibrate", &calibrate, nb::arg("model"), nb::arg("path"), nb::arg("tokens"), nb::kw_only(), nb::arg("hessian"),
             nb::arg("resume"), nb::arg("sync"), nb::arg("threads"), nb::arg("memory_limit"), nb::arg("component"),
             nb::arg("variant"), nb::arg("progress").none());
}

}  // namespace ballast::python
