#include "jobs/verify/verify_pipeline.h"

#include <algorithm>
#include <iterator>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/verify/rest.h"
#include "source/path/folder.h"

namespace ballast {
namespace {

constexpr const char* kCheck = "components";

WorkOptions named_progress(const WorkOptions& work, const std::string& component) {
  WorkOptions named = work;
  if (!work.progress) return named;
  named.progress = [progress = work.progress, component](std::uint64_t done, std::uint64_t total, std::string_view what) {
    return progress(done, total, fmt::format("{}/{}", component, what));
  };
  return named;
}

void add(VerifyReport& all, const std::string& component, VerifyReport own) {
  all.components.push_back(component);
  for (std::string& check : own.checks) {
    if (std::ranges::find(all.checks, check) == all.checks.end()) all.checks.push_back(std::move(check));
  }
  const auto named = [&](const std::string& message) { return fmt::format("{}: {}", escape(component), message); };
  for (Defect& defect : own.defects) {
    all.defects.push_back({.check = std::move(defect.check), .message = named(defect.message), .component = component});
  }
  for (const std::string& skipped : own.skipped) all.skipped.push_back(named(skipped));
  for (const std::string& warning : own.warnings) all.warnings.push_back(named(warning));
  std::ranges::move(own.files, std::back_inserter(all.files));
  all.tensors += own.tensors;
  all.bytes += own.bytes;
}

bool is_defect(const Error& error) { return error.code == Errc::kCorrupt || error.code == Errc::kNotFound; }

}  // namespace

Result<VerifyReport> verify_pipeline(const std::string& root, const std::vector<PipelineEntry>& entries,
                                     const VerifyOptions& options) {
  VerifyReport all{.files = {}, .checks = {kCheck}, .skipped = {}, .defects = {}, .warnings = {}, .components = {}};
  bool has_variant = false;
  for (const PipelineEntry& entry : entries) {
    const auto fail_component = [&](const Error& error) {
      all.defects.push_back({.check = kCheck, .message = error.message, .component = entry.name});
    };
    const auto component = find_component(root, entry, read_options(options.open));
    if (!component && !is_defect(component.error())) return std::unexpected(component.error());
    if (!component) {
      fail_component(component.error());
      continue;
    }
    if (!component->has_weights) continue;
    VerifyOptions own = options;
    own.open.component.clear();
    own.work = named_progress(options.work, entry.name);
    const auto& variants = component->variants;
    if (std::ranges::find(variants, options.open.variant) != variants.end()) {
      has_variant = true;
    } else if (std::ranges::find(variants, "") != variants.end()) {
      own.open.variant.clear();
    }
    auto found = verify_model(component->path, own);
    if (!found && !is_defect(found.error())) return std::unexpected(found.error());
    if (found) {
      add(all, entry.name, std::move(*found));
    } else {
      fail_component(found.error());
    }
  }
  if (!options.open.variant.empty() && !has_variant) {
    return fail(Errc::kNotFound, "{}: no component has weights of the variant {}", escape(root), quote(options.open.variant));
  }
  std::vector<std::string> names;
  for (const PipelineEntry& entry : entries) names.push_back(entry.name);
  const Folder folder(root, read_options(options.open));
  TRY(add_rest(folder, {.weights = {}, .folders = names}, options.open, all));
  return all;
}

}  // namespace ballast
