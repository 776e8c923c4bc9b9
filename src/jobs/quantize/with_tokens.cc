#include "jobs/quantize/with_tokens.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <ballast/calibrate.h>

#include "base/fail.h"
#include "base/try.h"
#include "model/layer_names.h"

namespace ballast {
namespace {

// Removed when the work ends, unless it can resume.
class StatisticsFile {
 public:
  StatisticsFile(std::string directory, std::string_view ending) : path_(std::move(directory)) {
    while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
    path_ += ending;
  }
  StatisticsFile(const StatisticsFile&) = delete;
  StatisticsFile& operator=(const StatisticsFile&) = delete;
  ~StatisticsFile() { remove_unless_it_stays(); }

  const std::string& path() const { return path_; }
  void set_stays(bool stays) { stays_ = stays; }
  void remove_unless_it_stays() const {
    std::error_code ignored;
    if (!stays_) std::filesystem::remove(path_, ignored);
  }

 private:
  std::string path_;
  bool stays_ = false;
};

Result<void> check(const QuantizeOptions& options) {
  if (!options.calibration.empty()) {
    return fail(Errc::kInvalidArgument, "calibration and calibration_tokens exclude each other");
  }
  if (!is_search(options.config.method)) {
    return fail(Errc::kInvalidArgument, "method is {}, calibration_tokens needs auto or search", name(options.config.method));
  }
  return {};
}

// With `sequential`, the inputs of a layer come from the layers before it as that config quantizes them.
Result<void> record(const Model& model, const std::string& path, const QuantizeOptions& options,
                    const QuantizeConfig* sequential) {
  TRY(calibrate_model(model, *options.calibration_tokens, path,
                      {.hessian = options.config.type == QuantizeType::kInt,  // others do not use it
                       .sequential = sequential,
                       .resume = options.resume,
                       .sync = false,
                       .work = {.threads = options.work.threads, .progress = options.work.progress, .stop = options.work.stop}}));
  return {};
}

QuantizeOptions with_statistics(const QuantizeOptions& options, const std::string& path) {
  QuantizeOptions with_file = options;
  with_file.calibration = path;
  with_file.calibration_tokens = nullptr;
  return with_file;
}

// The statistics with which the bits for a target size are chosen: those of the original, because the layers before are only
// quantized when all bits are known.
StatisticsFile original_statistics(const std::string& directory) { return {directory, ".sensitivity.safetensors"}; }

Result<QuantizePlan> plan_for_size(const Model& model, const std::string& directory, const QuantizeOptions& options,
                                   const StatisticsFile& statistics) {
  TRY(record(model, statistics.path(), options, nullptr));
  return plan_quantize(model, directory, with_statistics(options, statistics.path()));
}

// The config with the bits of all quantized layers set.
QuantizeConfig with_bits_of(const QuantizePlan& plan, QuantizeConfig config) {
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.bits == 0) continue;
    config.layer_bit_widths.erase(std::string(layer_of(layer.name)));
    config.layer_bit_widths[layer.name] = layer.bits;
  }
  return config;
}

}  // namespace

Result<QuantizePlan> plan_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  TRY(check(options));
  if (options.config.target_model_size) return plan_for_size(model, directory, options, original_statistics(directory));
  QuantizeOptions without = options;
  without.calibration_tokens = nullptr;
  QuantizePlan plan = TRY(plan_quantize(model, directory, without));
  plan.notes.emplace_back("without the statistics, which a dry run records only to choose bits for a target size");
  return plan;
}

Result<QuantizeReport> quantize_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  TRY(check(options));
  QuantizeOptions chosen = options;
  StatisticsFile original = original_statistics(directory);
  StatisticsFile statistics(directory, ".statistics.safetensors");
  original.set_stays(options.resume);
  statistics.set_stays(options.resume);
  if (options.config.target_model_size) {
    chosen.config = with_bits_of(TRY(plan_for_size(model, directory, options, original)), options.config);
    original.remove_unless_it_stays();
  }
  TRY(record(model, statistics.path(), options, &chosen.config));
  auto report = quantize_model(model, directory, with_statistics(chosen, statistics.path()));
  // The compressed size was a little underestimated: bits are chosen again.
  if (!report && options.config.target_model_size && report.error().code == Errc::kInvalidArgument) {
    report = quantize_model(model, directory, with_statistics(options, statistics.path()));
  }
  if (!report) return report;
  original.set_stays(false);
  statistics.set_stays(false);
  report->notes.push_back(fmt::format("calibrated with {} tokens; the output may differ in the last digits between machines",
                                      options.calibration_tokens->ids.size()));
  return report;
}

}  // namespace ballast
