#include "jobs/quantize/with_tokens.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <ballast/calibrate.h>

#include "base/fail.h"
#include "base/try.h"

namespace ballast {
namespace {

// Removed when the work ends, unless it can resume.
class StatisticsFile {
 public:
  explicit StatisticsFile(const std::string& directory) : path_(directory) {
    while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
    path_ += ".statistics.safetensors";
  }
  StatisticsFile(const StatisticsFile&) = delete;
  StatisticsFile& operator=(const StatisticsFile&) = delete;
  ~StatisticsFile() {
    std::error_code ignored;
    if (!stays_) std::filesystem::remove(path_, ignored);
  }

  const std::string& path() const { return path_; }
  void set_stays(bool stays) { stays_ = stays; }

 private:
  std::string path_;
  bool stays_ = false;
};

}  // namespace

Result<void> check_calibration_tokens(const QuantizeOptions& options) {
  if (!options.calibration.empty()) {
    return fail(Errc::kInvalidArgument, "calibration and calibration_tokens exclude each other");
  }
  if (!is_search(options.config.method)) {
    return fail(Errc::kInvalidArgument, "method is {}, calibration_tokens needs auto or search", name(options.config.method));
  }
  return {};
}

Result<QuantizeReport> quantize_with_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  TRY(check_calibration_tokens(options));
  const TokenWindows& tokens = *options.calibration_tokens;
  StatisticsFile statistics(directory);
  statistics.set_stays(options.resume);
  TRY(calibrate_model(model, tokens, statistics.path(),
                      {.hessian = true,
                       .sequential = &options.config,
                       .resume = options.resume,
                       .sync = false,
                       .work = {.threads = options.work.threads, .progress = options.work.progress, .stop = options.work.stop}}));
  QuantizeOptions with_file = options;
  with_file.calibration = statistics.path();
  with_file.calibration_tokens = nullptr;
  QuantizeReport report = TRY(quantize_model(model, directory, with_file));
  statistics.set_stays(false);
  report.notes.push_back(
      fmt::format("calibrated with {} tokens; the output may differ in the last digits between machines", tokens.ids.size()));
  return report;
}

}  // namespace ballast
