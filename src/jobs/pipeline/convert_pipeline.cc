#include <algorithm>
#include <iterator>

#include <ballast/convert_model.h>
#include <ballast/quantize.h>
#include <ballast/weights.h>

#include "base/fail.h"
#include "base/try.h"
#include "jobs/lora/merge.h"
#include "jobs/pipeline/convert_component.h"
#include "jobs/pipeline/dequantize_pipeline.h"
#include "jobs/pipeline/write_pipeline.h"
#include "source/uri.h"

namespace ballast {
namespace {

// Options that name tensors or files of one model.
Result<void> check_options(const std::string& path, const ConvertOptions& options) {
  const auto needs_component = [&](std::string_view option) {
    return fail(Errc::kInvalidArgument, "{}: {}: not possible for all components at once; give component", shown(path), option);
  };
  if (!options.include.empty()) return needs_component("include");
  if (!options.exclude.empty()) return needs_component("exclude");
  if (!options.renames.empty()) return needs_component("rename");
  if (!options.dtype_rules.empty()) return needs_component("dtype_rules");
  if (options.metadata) return needs_component("metadata");
  return {};
}

void finish(ConvertReport& report, WrittenPipeline written) {
  report.components = std::move(written.components);
  report.not_copied.insert(report.not_copied.begin(), written.not_copied.begin(), written.not_copied.end());
  report.warnings.insert(report.warnings.begin(), written.warnings.begin(), written.warnings.end());
}

}  // namespace

Result<ConvertReport> convert_pipeline(const std::string& pipeline, const std::string& directory, const ConvertOptions& options,
                                       const OpenOptions& open) {
  TRY(check_options(pipeline, options));
  const PipelineInput input = TRY(open_pipeline(pipeline, open));
  TRY(check_roles(input.components, options.loras, open));
  ConvertReport report;
  auto written = TRY(write_pipeline(
      input,
      {.out = directory, .sync = options.sink.sync, .resume = options.resume, .force = options.force, .work = options.work},
      [&](const ComponentWork& work) -> Result<ComponentReport> {
        ConvertOptions own_options = options;
        own_options.loras = TRY(loras_for(work.component, options.loras, open));
        ConvertReport own = TRY(convert_component(work, own_options));
        auto made = component_report(work, ComponentAction::kConverted, own);
        add_component(report, work, std::move(own));
        return made;
      }));
  finish(report, std::move(written));
  return report;
}

Result<ConvertReport> dequantize_pipeline(const std::string& pipeline, const std::string& directory,
                                          const DequantizeOptions& options) {
  const PipelineInput input = TRY(open_pipeline(pipeline, options.open));
  ConvertReport report;
  auto written = TRY(write_pipeline(
      input, {.out = directory, .sync = options.sink.sync, .force = options.force, .work = options.work},
      [&](const ComponentWork& work) -> Result<ComponentReport> {
        const bool is_plain = !TRY(Weights::open(work.component.path, work.open)).is_quantized();
        DequantizeOptions own_options = options;
        own_options.open = work.open;
        own_options.work = work.work;
        own_options.force = true;  // what is there already is of an earlier run
        ConvertReport own =
            TRY(is_plain ? copy_component(work, options.sink) : dequantize_model(work.component.path, work.out, own_options));
        auto made = component_report(work, is_plain ? ComponentAction::kUnquantized : ComponentAction::kDequantized, own);
        add_component(report, work, std::move(own));
        return made;
      }));
  finish(report, std::move(written));
  return report;
}

Result<ConvertReport> convert_path(const std::string& source, const std::string& path, const ConvertOptions& options,
                                   const OpenOptions& open) {
  const auto model = open_to_convert(source, path, options, open);
  if (model) return convert_model(*model, path, options);
  if (TRY(is_pipeline_instead(model.error(), source, open))) return convert_pipeline(source, path, options, open);
  return std::unexpected(model.error());
}

}  // namespace ballast
