#include <algorithm>
#include <iterator>

#include <fmt/ranges.h>

#include <ballast/diff.h>
#include <ballast/quantize.h>
#include <ballast/weights.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/merge.h"
#include "jobs/pipeline/convert_component.h"
#include "jobs/pipeline/write_pipeline.h"
#include "jobs/quantize/report.h"
#include "jobs/quantize/up_to_date.h"
#include "source/uri.h"

namespace ballast {
namespace {

std::vector<std::string> denoisers(const PipelineInput& input) {
  std::vector<std::string> names;
  for (const Component& component : input.components) {
    if (component.has_weights && component.is_denoiser) names.push_back(escape(component.name));
  }
  return names;
}

// Something must be quantized, and options for one model need that it is one.
Result<void> check_options(const PipelineInput& input, const QuantizeOptions& options) {
  const std::vector<std::string> names = denoisers(input);
  if (names.empty()) {
    std::vector<std::string> others;
    for (const Component& component : input.components) {
      if (component.has_weights) others.push_back(escape(component.name));
    }
    return fail(Errc::kInvalidArgument, "{}: none of the components {} is quantized unless it is named; give component {}",
                shown(input.root), fmt::join(others, ", "), others.empty() ? "NAME" : others.front());
  }
  const bool is_for_one = !options.calibration.empty() || options.config.target_model_size;
  if (is_for_one && names.size() > 1) {
    return fail(Errc::kInvalidArgument, "{}: {}: not possible for {} at once; give component {}", shown(input.root),
                options.calibration.empty() ? "target_model_size_mb" : "calibration", fmt::join(names, " and "), names.front());
  }
  return {};
}

// The values of a component, with the adapters that are for it.
Result<Model> open_component(const Component& component, std::span<const Lora> loras, const OpenOptions& open) {
  return open_merged(component.path, TRY(loras_for(component, loras, open)), open);
}

// The same for a component that is not quantized, whose tensors may be anything.
Result<Model> open_unquantized(const Component& component, std::span<const Lora> loras, const OpenOptions& open) {
  const auto own = TRY(loras_for(component, loras, open));
  return own.empty() ? Model::open(component.path, open) : open_merged(component.path, own, open);
}

// A report under way: summarize_layers() sets what depends on all components.
void add_unquantized(QuantizeReport& all, const Model& model) {
  for (const TensorInfo& tensor : model.tensors()) all.unquantized_parameters += tensor.elements();
  all.unquantized_bytes += model.data_bytes();
}

void summarize(QuantizeReport& all, double min_accuracy) {
  summarize_layers(all, {.parameters = all.unquantized_parameters, .bytes = all.unquantized_bytes}, min_accuracy);
}

void add_report(QuantizeReport& all, const ComponentWork& work, QuantizeReport own) {
  for (LayerReport& layer : own.layers) {
    layer.name = name_in(work.component, layer.name);
    all.layers.push_back(std::move(layer));
  }
  for (const std::string& file : own.files) all.files.push_back(work.final_path(file));
  all.unquantized += own.unquantized;
  all.unquantized_parameters += own.unquantized_parameters;
  all.unquantized_bytes += own.unquantized_bytes;
  all.source_bytes += own.source_bytes;
  all.bytes += own.bytes;
  all.passed = all.passed && own.passed;
  if (all.modality == Modality::kUnknown) all.modality = own.modality;
  if (own.calibration) all.calibration = std::move(own.calibration);
  std::ranges::move(names_in(work.component, std::move(own.not_copied)), std::back_inserter(all.not_copied));
  std::ranges::move(names_in(work.component, std::move(own.left_out)), std::back_inserter(all.left_out));
  std::ranges::move(named_warnings(work, std::move(own.notes)), std::back_inserter(all.notes));
  std::ranges::move(named_warnings(work, std::move(own.warnings)), std::back_inserter(all.warnings));
}

void add_report(QuantizeReport& all, const ComponentWork& work, const Model& source, ConvertReport own) {
  ConvertReport named;
  add_component(named, work, std::move(own));
  all.unquantized += named.tensors;
  add_unquantized(all, source);
  all.source_bytes += source.file_size();
  for (ConvertedFile& file : named.files) {
    all.bytes += file.bytes;
    all.files.push_back(std::move(file.path));
  }
  std::ranges::move(named.not_copied, std::back_inserter(all.not_copied));
  std::ranges::move(named.notes, std::back_inserter(all.notes));
  std::ranges::move(named.warnings, std::back_inserter(all.warnings));
}

// A component that an earlier run has finished is measured on its files.
Result<QuantizeReport> quantize_component(const ComponentWork& work, const QuantizeOptions& options) {
  QuantizeOptions own = options;
  own.loras = TRY(loras_for(work.component, options.loras, work.open));
  const Model model = TRY(open_merged(work.component.path, own.loras, work.open));
  own.work = work.work;
  own.resume = !work.record.empty();
  own.force = true;  // what is there already is of an earlier run
  QuantizeReport report = TRY(quantize_model(model, work.out, own));
  if (report.up_to_date) {
    const Modality modality = report.modality;
    report = TRY(validate_model(model, work.out, {.min_accuracy = options.config.min_accuracy, .work = work.work}));
    report.modality = modality;
  }
  report.warnings.insert(report.warnings.begin(), model.warnings().begin(), model.warnings().end());
  return report;
}

Result<ComponentReport> write_component(const ComponentWork& work, const QuantizeOptions& options, QuantizeReport& all) {
  if (!work.component.is_denoiser) {
    const Model model = TRY(Model::open(work.component.path, work.open));
    const auto loras = TRY(loras_for(work.component, options.loras, work.open));
    const ConvertOptions merging{.loras = loras, .sink = {.sync = options.sync}};
    ConvertReport own = TRY(loras.empty() ? copy_component(work, merging.sink) : convert_component(work, merging));
    auto made = component_report(work, ComponentAction::kUnquantized, own);
    add_report(all, work, model, std::move(own));
    return made;
  }
  QuantizeReport own = TRY(quantize_component(work, options));
  auto made = component_report(work, ComponentAction::kQuantized, own.layers.size() + own.unquantized, own.bytes);
  add_report(all, work, std::move(own));
  return made;
}

// The work of a component when nothing is written.
ComponentWork planned_work(const PipelineInput& input, std::size_t i, const std::string& directory, const WorkOptions& work) {
  const std::string out = fmt::format("{}/{}", directory, input.components[i].name);
  return {.component = input.components[i], .open = input.open[i], .out = out, .final_out = out, .record = {}, .work = work};
}

Result<bool> is_finished(const PipelineInput& input, const std::string& directory, const QuantizeOptions& options) {
  if (!options.resume || !is_newer_than_sources(input, directory)) return false;
  for (std::size_t i = 0; i < input.components.size(); ++i) {
    const Component& component = input.components[i];
    if (!component.has_weights) continue;
    QuantizeOptions own = options;
    own.loras = TRY(loras_for(component, options.loras, input.open[i]));
    if (!component.is_denoiser && !own.loras.empty()) return false;  // nothing records what was merged
    if (!component.is_denoiser) continue;
    const Model model = TRY(open_merged(component.path, own.loras, input.open[i]));
    if (!TRY(is_up_to_date(model, fmt::format("{}/{}", directory, component.name), own))) return false;
  }
  return true;
}

// The number of tensors and the bytes of a component's files.
Result<ComponentReport> describe_written(const ComponentWork& work, ComponentAction action) {
  const Weights weights = TRY(Weights::open(work.out));
  std::uint64_t bytes = 0;
  for (const ModelFile& file : weights.files()) bytes += file.size;
  return component_report(work, action, weights.weights().size(), bytes);
}

ComponentAction action_of(const Component& component) {
  if (!component.has_weights) return ComponentAction::kCopied;
  return component.is_denoiser ? ComponentAction::kQuantized : ComponentAction::kUnquantized;
}

Result<QuantizeReport> report_finished(const PipelineInput& input, const std::string& directory) {
  QuantizeReport report{.up_to_date = true, .warnings = input.warnings};
  for (std::size_t i = 0; i < input.components.size(); ++i) {
    const ComponentWork work = planned_work(input, i, directory, {});
    const ComponentAction action = action_of(work.component);
    const bool is_copied = action == ComponentAction::kCopied;
    report.components.push_back(is_copied ? component_report(work, action, 0, 0) : TRY(describe_written(work, action)));
  }
  return report;
}

// Compares a component that is not quantized.
Result<void> compare_plain(const ComponentWork& work, const Model& original, QuantizeReport& all) {
  const Model written = TRY(Model::open(work.out));
  const DiffReport found = TRY(diff_models(original, written, work.work));
  all.unquantized += written.tensors().size();
  add_unquantized(all, written);
  all.source_bytes += original.file_size();
  all.bytes += written.file_size();
  for (const ModelFile& file : written.files()) all.files.push_back(file.path);
  if (found.equal()) return {};
  all.passed = false;
  all.warnings.push_back(fmt::format("{}: unquantized, but {} tensors differ from the original", escape(work.component.name),
                                     found.only_a.size() + found.only_b.size() + found.changed.size()));
  return {};
}

}  // namespace

Result<QuantizeReport> quantize_pipeline(const std::string& pipeline, const std::string& directory,
                                         const QuantizeOptions& options, const OpenOptions& open) {
  TRY(validate(options.config));
  const PipelineInput input = TRY(open_pipeline(pipeline, open));
  TRY(check_options(input, options));
  TRY(check_roles(input.components, options.loras, open));
  TRY(check_pipeline_output(input, directory, options.force));
  if (TRY(is_finished(input, directory, options))) return report_finished(input, directory);
  QuantizeReport report;
  auto written = TRY(write_pipeline(
      input, {.out = directory, .sync = options.sync, .resume = options.resume, .force = options.force, .work = options.work},
      [&](const ComponentWork& work) { return write_component(work, options, report); }));
  summarize(report, options.config.min_accuracy);
  report.components = std::move(written.components);
  report.not_copied.insert(report.not_copied.begin(), written.not_copied.begin(), written.not_copied.end());
  report.warnings.insert(report.warnings.begin(), written.warnings.begin(), written.warnings.end());
  return report;
}

Result<QuantizeReport> quantize_path(const std::string& source, const std::string& directory, const QuantizeOptions& options,
                                     const OpenOptions& open) {
  TRY(validate(options.config));
  const auto model = open_merged(source, options.loras, open);
  if (model) return quantize_model(*model, directory, options);
  if (TRY(is_pipeline_instead(model.error(), source, open))) return quantize_pipeline(source, directory, options, open);
  return std::unexpected(model.error());
}

Result<QuantizeReport> validate_path(const std::string& original, const std::string& quantized, const ValidateOptions& options,
                                     const OpenOptions& open) {
  const auto model = open_merged(original, options.loras, open);
  if (model) {
    ValidateOptions own = options;  // the other may be a pipeline as well
    if (!open.component.empty() && !TRY(list_components(quantized, options.open)).empty()) own.open.component = open.component;
    return validate_model(*model, quantized, own);
  }
  if (TRY(is_pipeline_instead(model.error(), original, open))) return validate_pipeline(original, quantized, options, open);
  return std::unexpected(model.error());
}

Result<QuantizePlan> plan_quantize_pipeline(const std::string& pipeline, const std::string& directory,
                                            const QuantizeOptions& options, const OpenOptions& open) {
  TRY(validate(options.config));
  const PipelineInput input = TRY(open_pipeline(pipeline, open));
  TRY(check_options(input, options));
  TRY(check_roles(input.components, options.loras, open));
  TRY(check_pipeline_output(input, directory, options.force));
  QuantizePlan all;
  for (std::size_t i = 0; i < input.components.size(); ++i) {
    const ComponentWork work = planned_work(input, i, directory, options.work);
    const ComponentAction action = action_of(work.component);
    if (action == ComponentAction::kCopied) {
      all.components.push_back(component_report(work, action, 0, 0));
      continue;
    }
    const Model model = TRY(Model::open(work.component.path, work.open));
    if (action == ComponentAction::kUnquantized) {
      all.components.push_back(component_report(work, action, model.tensors().size(), model.file_size()));
      all.source_bytes += model.file_size();
      all.bytes += model.file_size();
      continue;
    }
    QuantizeOptions own_options = options;
    own_options.loras = TRY(loras_for(work.component, options.loras, work.open));
    const Model merged = TRY(open_merged(work.component.path, own_options.loras, work.open));
    QuantizePlan own = TRY(plan_quantize(merged, work.out, own_options));
    all.components.push_back(component_report(work, action, own.layers.size(), own.bytes));
    all.source_bytes += own.source_bytes;
    all.bytes += own.bytes;
    if (all.modality == Modality::kUnknown) all.modality = own.modality;
    all.key += (all.key.empty() ? "" : " ") + own.key;
    std::ranges::move(names_in(work.component, std::move(own.left_out)), std::back_inserter(all.left_out));
    std::ranges::move(named_warnings(work, std::move(own.notes)), std::back_inserter(all.notes));
    for (PlannedLayer& layer : own.layers) {
      layer.name = name_in(work.component, layer.name);
      all.layers.push_back(std::move(layer));
    }
  }
  return all;
}

Result<QuantizeReport> validate_pipeline(const std::string& original, const std::string& quantized,
                                         const ValidateOptions& options, const OpenOptions& open) {
  const PipelineInput input = TRY(open_pipeline(original, open));
  OpenOptions plain = options.open;
  plain.variant.clear();
  const PipelineInput output = TRY(open_pipeline(quantized, plain));
  QuantizeReport all{.warnings = input.warnings};
  for (std::size_t i = 0; i < input.components.size(); ++i) {
    const ComponentWork work = planned_work(input, i, output.root, options.work);
    const auto written = std::ranges::find(output.components, work.component.name, &Component::name);
    if (written == output.components.end()) {
      return fail(Errc::kCorrupt, "{}: no component {}; {} has it", shown(quantized), quote(work.component.name),
                  shown(original));
    }
    if (!work.component.has_weights) continue;
    const bool is_plain = TRY(Weights::open(written->path, plain)).scheme() == "plain";
    if (is_plain) {
      TRY(compare_plain(work, TRY(open_unquantized(work.component, options.loras, work.open)), all));
    } else {
      const Model model = TRY(open_component(work.component, options.loras, work.open));
      add_report(
          all, work,
          TRY(validate_model(model, written->path, {.open = plain, .min_accuracy = options.min_accuracy, .work = options.work})));
    }
    all.components.push_back(TRY(describe_written(work, is_plain ? ComponentAction::kUnquantized : ComponentAction::kQuantized)));
  }
  const bool passed = all.passed;
  summarize(all, options.min_accuracy);
  all.passed = all.passed && passed;
  return all;
}

}  // namespace ballast
