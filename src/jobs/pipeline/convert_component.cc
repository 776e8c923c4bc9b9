#include "jobs/pipeline/convert_component.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/identity.h"
#include "output/file.h"
#include "output/output.h"
#include "source/path/path.h"
#include "source/sha256.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// Identifies the conversion of a component: its files, as they are now, and the options that change the output.
Result<std::string> key_of(const ComponentWork& work, const Model& model, const ConvertOptions& options) {
  Sha256 hash;
  hash.add(as_bytes(fmt::format("1\n{}\n{}\n{}\n{}\n", options.dtype ? name(*options.dtype) : "",
                                options.sink.format ? name(*options.sink.format) : "", options.sink.max_shard_bytes,
                                options.on_loss == OnLoss::kAllow ? "allow" : "refuse")));
  hash.add(as_bytes(TRY(describe_files(model))));
  hash.add(as_bytes(TRY(describe_folder(work.component.path, work.open))));
  return hash.hex();
}

// The report of an earlier run, read from its output; empty if the output is not there or is of other work.
std::optional<ConvertReport> read_finished(const ComponentWork& work, const Model& model, const std::string& key) {
  const auto recorded = read_text(work.record);
  if (!recorded || *recorded != key) return std::nullopt;
  const auto made = Model::open(work.out);
  if (!made) return std::nullopt;
  ConvertReport report{.tensors = made->tensors().size(), .data_bytes = made->data_bytes()};
  for (const TensorInfo& tensor : made->tensors()) {
    const TensorInfo* const from = model.find(tensor.name);
    if (from == nullptr || from->dtype != tensor.dtype) ++report.converted;
  }
  for (const ModelFile& file : made->files()) report.files.push_back({.path = file.path, .bytes = file.size});
  return report;
}

Result<void> record(const ComponentWork& work, const std::string& key) {
  OutputFile file = TRY(OutputFile::create(work.record));
  TRY(file.write_at(0, as_bytes(key)));
  TRY(file.sync());
  return file.publish();
}

}  // namespace

Result<ConvertReport> convert_component(const ComponentWork& work, const ConvertOptions& options) {
  ConvertOptions own = options;
  own.work = work.work;
  own.resume = !work.record.empty() && options.sink.format != Format::kMlxJson;
  own.force = true;  // what is there already is of an earlier run
  const Model model = TRY(open_to_convert(work.component.path, work.out, own, work.open));
  std::string key;
  if (!work.record.empty()) {
    key = TRY(key_of(work, model, own));
    if (auto finished = read_finished(work, model, key)) return std::move(*finished);
    std::error_code ignored;
    fs::remove_all(work.out, ignored);
    fs::remove(work.record, ignored);
  }
  auto report = TRY(convert_model(model, work.out, own));
  report.warnings.insert(report.warnings.begin(), model.warnings().begin(), model.warnings().end());
  if (!work.record.empty()) TRY(record(work, key));
  return report;
}

Result<ConvertReport> copy_component(const ComponentWork& work, const SinkOptions& sink) {
  const Model model = TRY(Model::open(work.component.path, work.open));
  ConvertOptions options{.sink = {.sync = sink.sync}};
  if (model.files().size() > 1) {
    options.sink.max_shard_bytes = std::ranges::max(model.files(), {}, &ModelFile::size).size;
  }
  return convert_component(work, options);
}

void add_component(ConvertReport& all, const ComponentWork& work, ConvertReport own) {
  for (const ConvertedFile& file : own.files) all.files.push_back({.path = work.final_path(file.path), .bytes = file.bytes});
  all.tensors += own.tensors;
  all.converted += own.converted;
  all.data_bytes += own.data_bytes;
  std::ranges::move(names_in(work.component, std::move(own.not_copied)), std::back_inserter(all.not_copied));
  std::ranges::move(named_warnings(work, std::move(own.notes)), std::back_inserter(all.notes));
  std::ranges::move(named_warnings(work, std::move(own.warnings)), std::back_inserter(all.warnings));
}

ComponentReport component_report(const ComponentWork& work, ComponentAction action, std::uint64_t tensors, std::uint64_t bytes) {
  return {
      .name = work.component.name, .class_name = work.component.class_name, .action = action, .tensors = tensors, .bytes = bytes};
}

ComponentReport component_report(const ComponentWork& work, ComponentAction action, const ConvertReport& own) {
  std::uint64_t bytes = 0;
  for (const ConvertedFile& file : own.files) bytes += file.bytes;
  return component_report(work, action, own.tensors, bytes);
}

std::string name_in(const Component& component, const std::string& name) { return fmt::format("{}/{}", component.name, name); }

std::vector<std::string> names_in(const Component& component, std::vector<std::string> names) {
  for (std::string& name : names) name = name_in(component, name);
  return names;
}

std::vector<std::string> named_warnings(const ComponentWork& work, std::vector<std::string> warnings) {
  for (std::string& warning : warnings) warning = fmt::format("{}: {}", escape(work.component.name), warning);
  return warnings;
}

}  // namespace ballast
