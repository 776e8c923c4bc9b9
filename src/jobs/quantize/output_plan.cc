#include "jobs/quantize/output_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/companions.h"
#include "model/identity.h"
#include "model/state.h"
#include "plan/config_fields.h"
#include "plan/config_json.h"
#include "scheme/reader.h"
#include "source/sha256.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.add(as_bytes(text));
  return hash.hex();
}

// Identifies the work. Threads and memory are left out, because the output does not depend on them.
std::string make_key(const LayerCoder& coder, Modality modality) {
  QuantizeConfig config = coder.config();
  config.num_threads = 0;
  config.max_memory_limit = 0;
  const Model& model = coder.model();
  std::string text = fmt::format("1\n{}\n{}\n{}\n", recorded_yaml(config), name(modality), files_json(coder.source()));
  if (const Calibration* const calibration = coder.calibration()) {
    text += files_json(calibration->statistics().file()) + "\n";
    // The memory limit decides which Hessians are used.
    for (std::size_t i = 0; i < model.tensors().size(); ++i) text += calibration->has_feedback(i) ? '1' : '0';
    text += "\n";
  }
  for (const TensorInfo& tensor : model.tensors()) {
    text += fmt::format("{}\n{} {} {}\n", tensor.name, name(tensor.dtype), to_string(tensor.shape), tensor.begin);
  }
  return hash_of(text);
}

// Also covers when the files changed.
Result<std::string> make_resume_key(const LayerCoder& coder, const std::string& key) {
  const std::string files = TRY(describe_files(coder.source()));
  if (coder.calibration() == nullptr) return hash_of(key + files);
  return hash_of(key + files + TRY(describe_files(coder.calibration()->statistics().file())));
}

}  // namespace

std::vector<std::string> names_of(const OutputPlan& output, QuantizeFormat format) {
  std::vector<std::string> names{std::string(format == QuantizeFormat::kParquet ? kParquetMetadataFile : kConfigFile)};
  for (const Companion& companion : output.companions) names.push_back(companion.name);
  return names;
}

Result<OutputPlan> describe_output(const LayerCoder& coder, const Plan& plan, const QuantizeOptions& options, Modality modality) {
  const Model& model = coder.model();
  OutputPlan output{.model_path = model.path(),
                    .weights = {},
                    .blocks = {},
                    .bits = options.config.bit_width,
                    .group_size = options.config.group_size,
                    .type = options.config.type,
                    .is_symmetric = !options.config.asymmetric,
                    .time_boundaries = {},
                    .is_diffusion = is_diffusion_model(model, modality),
                    .modality = modality == Modality::kUnknown ? "" : std::string(name(modality)),
                    .settings = settings_json(options.config),
                    .source = files_json(coder.source()),
                    .source_bytes = coder.source().file_size(),
                    .key = make_key(coder, modality),
                    .resume_key = {},
                    .companions = {},
                    .not_copied = {},
                    .metadata = about_model(model.metadata()),
                    .config_members = {}};
  if (coder.calibration() != nullptr && coder.calibration()->is_time_aware()) {
    output.time_boundaries = coder.calibration()->boundaries();
  }
  if (options.resume) output.resume_key = TRY(make_resume_key(coder, output.key));
  if (const Folder* const folder = ModelAccess::folder(model)) {
    auto companions = TRY(find_companions(*folder, ModelAccess::stored_files(model), {}));
    if (ModelAccess::is_dequantized(model)) TRY(drop_quantization(companions));
    leave_out_quantization(companions);
    output.companions = std::move(companions.files);
    output.not_copied = std::move(companions.not_copied);
  }
  return with_layers(std::move(output), coder, plan, 1);
}

OutputPlan with_layers(OutputPlan output, const LayerCoder& coder, const Plan& plan, unsigned attempt) {
  output.weights.clear();
  for (std::size_t i = 0; i < plan.size(); ++i) output.weights.push_back(coder.layout(i, plan[i]));
  output.blocks = cut_blocks(output.weights);
  if (attempt > 1 && !output.resume_key.empty()) output.resume_key = hash_of(fmt::format("{}{}", output.resume_key, attempt));
  return output;
}

bool is_finished(const std::string& directory, const OutputPlan& output, const LayerCoder& coder) {
  if (coder.scheme().finished_key(directory) != output.key) return false;
  const auto written = Weights::open(directory);
  if (!written || !written->time_boundaries()) return false;
  // By ctime, which unlike mtime cannot be set back.
  struct stat made{};
  const std::string last = fmt::format("{}/{}", directory, coder.scheme().last_file());
  if (::stat(last.c_str(), &made) != 0) return false;
  const auto is_older = [&](const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 &&
           std::pair(status.st_ctim.tv_sec, status.st_ctim.tv_nsec) <= std::pair(made.st_ctim.tv_sec, made.st_ctim.tv_nsec);
  };
  const auto is_there = [&](const Companion& companion) {
    return is_older(companion.path) && fs::exists(fmt::format("{}/{}", directory, companion.name));
  };
  const auto statistics =
      coder.calibration() != nullptr ? coder.calibration()->statistics().file().files() : std::span<const ModelFile>();
  return std::ranges::all_of(ModelAccess::input_files(coder.source()), is_older, &ModelFile::path) &&
         std::ranges::all_of(statistics, is_older, &ModelFile::path) &&
         std::ranges::all_of(reader_of(*written).files(), is_older, &ModelFile::path) &&
         std::ranges::all_of(output.companions, is_there);
}

}  // namespace ballast
