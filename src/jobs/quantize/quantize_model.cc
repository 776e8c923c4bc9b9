#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>

#include <sys/stat.h>

#include <ballast/quantize.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"
#include "model/state.h"
#include "quantize/gptq.h"
#include "scheme/parquet/metadata.h"
#include "quantize/quality.h"
#include "scheme/reader.h"
#include "jobs/quantize/report.h"
#include "jobs/quantize/choose_layers.h"
#include "jobs/companions.h"
#include "jobs/quantize/layer_coder.h"
#include "scheme/writer.h"
#include "model/identity.h"
#include "source/sha256.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

RowFormat row_format(const TensorInfo& tensor, const LayerPlan& plan, QuantizeFormat format) {
  const bool is_mlx = format == QuantizeFormat::kMlx;
  return {.columns = plan.columns,
          .bits = plan.bits,
          .group_size = plan.group_size,
          .affine = is_mlx ? Affine::kScaleBias : Affine::kScaleZero,
          .parameters = is_mlx ? mlx_parameter_dtype(tensor.dtype) : DType::kBF16};
}

// Rows of bytes: one for each element of the first dimension if it fills whole bytes, else all at once.
RowFormat kept_format(const TensorInfo& tensor) {
  const std::uint64_t first = tensor.shape.empty() ? 1 : tensor.shape.front();
  return {.columns = first != 0 && tensor.bytes() % first == 0 ? tensor.bytes() / first : tensor.bytes()};
}

void add_blocks(std::vector<TensorBlock>& blocks, std::size_t tensor, std::uint64_t rows, std::uint64_t columns) {
  const std::uint64_t most = rows_of_block(columns);
  const auto count = static_cast<std::uint32_t>(std::max<std::uint64_t>((rows + most - 1) / most, 1));
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(
        {.tensor = tensor, .first_row = i * most, .rows = std::min(most, rows - i * most), .number = i, .count = count});
  }
}

// Which layers are not good enough, the first few by name.
std::string describe_below(const std::vector<LayerReport>& layers, const QuantizeConfig& config) {
  constexpr std::size_t kFew = 3;
  std::vector<std::string> names;
  for (const LayerReport& layer : layers) {
    if (layer.quality.cosine_similarity < config.min_accuracy) names.push_back(quote(layer.name));
  }
  const std::size_t count = names.size();
  names.resize(std::min(count, kFew));
  return fmt::format("{} of {} layers below the minimum cosine of {}{}: {}{}", count, layers.size(), config.min_accuracy,
                     config.target_model_size_mb ? ", as the size leaves them no more bits" : " even with 8 bits",
                     fmt::join(names, ", "), count > kFew ? ", ..." : "");
}

// The names of the folders in a directory, with commas between.
std::string folders_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  if (directory.empty()) return {};
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(ignored) && !name.starts_with('.')) names.push_back(escape(name));
  }
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.add(as_bytes(text));
  return hash.hex();
}

std::uint64_t bytes_of(const std::vector<QuantizedOutput::File>& files) {
  std::uint64_t bytes = 0;
  for (const QuantizedOutput::File& file : files) bytes += file.bytes;
  return bytes;
}

class Quantization {
 public:
  Quantization(const Model& model, const QuantizeOptions& options)
      : options_(options),
        work_{.model = model,
              .config = options.config,
              .modality = options.config.modality.value_or(model.modality()),
              .plans = {},
              .formats = {},
              .restore = {},
              .blocks = {},
              .calibration = {},
              .is_diffusion = false,
              .companions = {},
              .key = {},
              .resume_key = {},
              .source_json = {}},
        coder_(work_, options.progress) {}

  Result<QuantizeReport> run(const std::string& directory);

 private:
  Result<void> prepare();
  Result<void> refuse_quantized() const;
  Result<void> check_names() const;
  void cut();
  Result<void> choose_threads();
  Result<void> choose();
  Result<std::unique_ptr<QuantizedOutput>> make(const std::string& directory);
  Result<void> process(QuantizedOutput& output);
  Result<void> process_block(QuantizedOutput& output, std::size_t block, CodedBuffers& buffers);
  Result<void> finish_layer(std::size_t tensor);
  bool note(Result<void> outcome, std::size_t block);
  std::string method_of(std::size_t tensor) const;
  CalibrationReport describe_calibration() const;
  QuantizeReport report() const;
  Result<void> measure_skipped(const std::string& directory);
  std::string make_key() const;
  bool is_finished(const std::string& directory) const;
  std::vector<std::string> warnings() const;

  const QuantizeOptions& options_;
  QuantizeWork work_;
  LayerCoder coder_;
  std::vector<unsigned> planned_bits_;
  std::optional<SizeFit> fit_;  // if a size is asked for
  unsigned threads_ = 1;
  std::atomic<bool> has_time_bias_ = false;  // one that is not 0
  std::mutex mutex_;
  std::vector<QualitySums> figures_;      // for each block
  std::vector<bool> skipped_;             // blocks of an earlier run, whose figures are not known yet
  std::vector<std::size_t> blocks_left_;  // of each tensor
  std::optional<Error> error_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

// Everything that depends on the plans.
void Quantization::cut() {
  work_.formats.clear();
  work_.blocks.clear();
  for (std::size_t i = 0; i < work_.plans.size(); ++i) {
    const TensorInfo& tensor = work_.model.tensors()[i];
    if (work_.is_quantized(i)) {
      work_.formats.push_back(row_format(tensor, work_.plans[i], options_.config.format));
      add_blocks(work_.blocks, i, work_.plans[i].rows, work_.plans[i].columns);
    } else {
      work_.formats.push_back(kept_format(tensor));
      add_blocks(work_.blocks, i, work_.formats[i].columns == 0 ? 0 : tensor.bytes() / work_.formats[i].columns,
                 work_.formats[i].columns);
    }
  }
}

// Weights whose scales lie beside them would lose their meaning.
Result<void> Quantization::refuse_quantized() const {
  constexpr std::string_view kScales = ".scales";
  for (const TensorInfo& tensor : work_.model.tensors()) {
    if (!tensor.name.ends_with(kScales)) continue;
    const std::string base(tensor.name.substr(0, tensor.name.size() - kScales.size()));
    const TensorInfo* const weight = work_.model.has(base) ? work_.model.find(base) : work_.model.find(base + ".weight");
    if (weight != nullptr && (weight->dtype == DType::kU32 || weight->dtype == DType::kU8)) {
      return fail(Errc::kUnsupported, "{}: tensor {} is quantized already: dequantize the model first",
                  escape(work_.model.path()), quote(weight->name));
    }
  }
  return {};
}

// In MLX's format names tell what belongs together, so they must not do so by chance.
Result<void> Quantization::check_names() const {
  const auto tensors = work_.model.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string_view tensor = tensors[i].name;
    if (!work_.is_quantized(i)) {
      if (!tensor.ends_with(".scales") && !tensor.ends_with(".biases")) continue;
      return coder_.fail_tensor(i, Errc::kUnsupported,
                                "MLX would take it for a part of a quantized tensor; rename it with convert");
    }
    constexpr std::string_view kWeight = ".weight";
    constexpr std::array<std::string_view, 4> kSettings{"bits", "group_size", "mode", "per_tensor"};
    const bool is_weight = tensor.ends_with(kWeight);
    const std::string base(tensor.substr(0, tensor.size() - (is_weight ? kWeight.size() : 0)));
    if (std::ranges::find(kSettings, base) != kSettings.end()) {
      return coder_.fail_tensor(i, Errc::kUnsupported,
                                "MLX's config has a setting of that name; keep it, or rename it with convert");
    }
    for (const std::string& needed : {base + ".scales", base + ".biases", is_weight ? base : base + ".weight"}) {
      if (!work_.model.has(needed)) continue;
      return coder_.fail_tensor(
          i, Errc::kUnsupported,
          fmt::format("to be quantized it must be alone with its name, but there is {} too; keep it, or rename one",
                      quote(needed)));
    }
  }
  return {};
}

Result<void> Quantization::prepare() {
  if (auto checked = refuse_quantized(); !checked) return checked;
  auto plans = plan_layers(work_.model, options_.config);
  if (!plans) return std::unexpected(plans.error());
  work_.plans = std::move(*plans);
  for (const LayerPlan& plan : work_.plans) planned_bits_.push_back(plan.bits);
  if (options_.config.format == QuantizeFormat::kMlx) {
    if (auto checked = check_names(); !checked) return checked;
  }
  work_.is_diffusion = is_diffusion_model(work_.model, work_.modality);
  work_.restore.resize(work_.plans.size());
  if (!options_.calibration.empty()) {
    auto calibration = Calibration::open(options_.calibration, work_.model, work_.plans, options_.config, work_.modality);
    if (!calibration) return std::unexpected(calibration.error());
    work_.calibration = std::move(*calibration);
  }
  cut();
  if (!work_.model.directory().empty()) {
    auto companions = find_companions(work_.model.directory(), {});
    if (!companions) return std::unexpected(companions.error());
    work_.companions = std::move(*companions);
    leave_out_quantization(work_.companions);
  }
  return choose_threads();
}

// A thread has the source's bytes of a block and what becomes of them; what Parquet gathers, and names and headers, have the
// rest.
Result<void> Quantization::choose_threads() {
  constexpr std::uint64_t kFixed = std::uint64_t{128} << 20;
  const std::uint64_t limit = std::uint64_t{options_.config.max_memory_limit_mb} << 20;
  std::uint64_t fixed = kFixed;
  std::uint64_t largest = 1;
  for (const TensorBlock& block : work_.blocks) {
    const RowFormat& format = work_.formats[block.tensor];
    // With the most bits that it may still be given.
    const std::uint64_t coded = work_.is_quantized(block.tensor) ? format.columns + format.groups() * 2 * sizeof(float) : 0;
    const std::uint64_t row = work_.source_row_bytes(block.tensor) + coded;
    const bool has_feedback = work_.calibration && work_.calibration->has_feedback(block.tensor);
    if (has_feedback) fixed = std::max(fixed, kFixed + 2 * Feedback::bytes(format.columns));
    const std::uint64_t bytes = block.rows * row + (has_feedback ? gptq_bytes(format) : 0);
    if (bytes > limit / 2) {
      return coder_.fail_tensor(block.tensor, Errc::kUnsupported,
                                fmt::format("a block of it takes {} bytes, half of the memory limit is {}", bytes, limit / 2));
    }
    largest = std::max(largest, bytes);
  }
  const std::uint64_t room = std::max(limit / 3, limit - std::min(limit, fixed));
  threads_ = static_cast<unsigned>(std::clamp<std::uint64_t>(room / largest, 1, thread_count(options_.config.num_threads)));
  return {};
}

// Bits and scales of layers, by trying them.
Result<void> Quantization::choose() {
  if (fit_) {
    if (auto chosen = fit_->choose(work_); !chosen) return fail_at(escape(work_.model.path()), chosen.error());
    for (std::size_t i = 0; i < work_.plans.size(); ++i) planned_bits_[i] = work_.plans[i].bits;
  } else if (auto raised = raise_bits(work_, coder_, threads_); !raised) {
    return raised;
  }
  return equalize_layers(work_, coder_, threads_);
}

// Everything but putting it in place. Where a size is asked for and what was made is larger, it is made again with fewer bits.
Result<std::unique_ptr<QuantizedOutput>> Quantization::make(const std::string& directory) {
  const std::string resume_key = work_.resume_key;
  if (options_.config.target_model_size_mb) {
    auto fit = SizeFit::make(work_, coder_);
    if (!fit) return fail_at(escape(work_.model.path()), fit.error());
    fit_ = std::move(*fit);
  }
  for (unsigned attempt = 1;; ++attempt) {
    work_.resume_key = attempt == 1 ? resume_key : hash_of(fmt::format("{}{}", resume_key, attempt));
    if (auto chosen = choose(); !chosen) return std::unexpected(chosen.error());
    auto output = options_.config.format == QuantizeFormat::kMlx
                      ? create_mlx_output(directory, work_, options_.sync, options_.resume)
                      : create_parquet_output(directory, work_, options_.sync, options_.resume);
    if (!output) return output;
    if (auto processed = process(**output); !processed) return std::unexpected(processed.error());
    if (!fit_) return output;
    const auto accepted = fit_->accept(work_, bytes_of((*output)->files()));
    if (accepted && *accepted) return output;
    output->reset();
    if (!accepted) {
      remove_leftovers(directory);
      return fail_at(escape(work_.model.path()), accepted.error());
    }
  }
}

bool Quantization::note(Result<void> outcome, std::size_t block) {
  const TensorBlock& at = work_.blocks[block];
  const std::scoped_lock lock(mutex_);
  done_ += at.rows * work_.source_row_bytes(at.tensor);
  if (outcome && --blocks_left_[at.tensor] == 0) outcome = finish_layer(at.tensor);
  if (!outcome && !error_) error_ = std::move(outcome.error());
  if (!error_ && options_.progress && !options_.progress(done_, total_, work_.model.tensors()[at.tensor].name)) {
    error_ = Error{.code = Errc::kCancelled, .message = "cancelled"};
  }
  return !error_;
}

// With fail_fast, the last block of a layer tells whether the layer is good enough. Blocks of an earlier run are coded again for
// that.
Result<void> Quantization::finish_layer(std::size_t tensor) {
  if (work_.calibration) work_.calibration->release(tensor);
  if (!options_.config.fail_fast || !work_.is_quantized(tensor)) return {};
  QualitySums sums;
  for (std::size_t i = 0; i < work_.blocks.size(); ++i) {
    if (work_.blocks[i].tensor == tensor) sums.add(figures_[i]);
  }
  const Quality quality = quality_of(sums);
  if (quality.cosine_similarity >= options_.config.min_accuracy) return {};
  return below_minimum(work_, coder_, tensor, quality.cosine_similarity);
}

Result<void> Quantization::process_block(QuantizedOutput& output, std::size_t block, CodedBuffers& buffers) {
  const TensorBlock& at = work_.blocks[block];
  if (skipped_[block] && !(options_.config.fail_fast && work_.is_quantized(at.tensor))) return {};
  if (!work_.is_quantized(at.tensor)) {
    if (auto read = coder_.read(at, buffers.in); !read) return read;
    return output.write_kept(block, buffers.in);
  }
  const auto sums = coder_.code(at, buffers);
  if (!sums) return std::unexpected(sums.error());
  figures_[block] = *sums;
  if (skipped_[block]) return {};
  const auto coded = coder_.finish(at.tensor, buffers);
  if (!coded) return std::unexpected(coded.error());
  if (std::ranges::any_of(coded->time_bias, [](float bias) { return bias != 0; })) has_time_bias_ = true;
  return output.write(block, *coded);
}

Result<void> Quantization::process(QuantizedOutput& output) {
  figures_.assign(work_.blocks.size(), {});
  skipped_.assign(work_.blocks.size(), false);
  blocks_left_.assign(work_.plans.size(), 0);
  done_ = 0;
  total_ = 0;
  for (std::size_t i = 0; i < work_.blocks.size(); ++i) {
    skipped_[i] = output.has(i);
    ++blocks_left_[work_.blocks[i].tensor];
    total_ += work_.blocks[i].rows * work_.source_row_bytes(work_.blocks[i].tensor);
  }
  ModelAccess::expect(work_.model, work_.model.tensors());
  std::vector<CodedBuffers> buffers(threads_);
  parallel_for(work_.blocks.size(), threads_, [&](unsigned worker, std::size_t i) {
    const bool goes_on = note(process_block(output, i, buffers[worker]), i);
    if (!goes_on) output.stop();
    return goes_on;
  });
  if (error_) return std::unexpected(std::move(*error_));
  return {};
}

std::vector<std::string> Quantization::warnings() const {
  std::vector<std::string> warnings;
  const QuantizeConfig& config = options_.config;
  if (config.enable_time_aware.value_or(false) && !work_.calibration) {
    warnings.push_back(fmt::format(
        "enable_time_aware has no effect without statistics of activations: 1 time group instead of {}", config.num_time_groups));
  }
  if (config.enable_spatial.value_or(false) && !work_.calibration) {
    warnings.emplace_back("enable_spatial has no effect without statistics of activations");
  }
  if (work_.calibration) std::ranges::copy(work_.calibration->warnings(), std::back_inserter(warnings));
  const bool is_all_new = std::ranges::find(skipped_, true) == skipped_.end();
  if (work_.calibration && work_.calibration->groups() > 1 && !has_time_bias_ && is_all_new) {
    warnings.emplace_back("no time_bias is more than chance: record more inputs at each timestep, and their count");
  }
  if (config.format == QuantizeFormat::kParquet &&
      std::ranges::find(work_.companions, kParquetMetadataFile, &Companion::name) != work_.companions.end()) {
    warnings.push_back(fmt::format("the model's {} is left out: the format has its own", kParquetMetadataFile));
  }
  if (const std::string folders = folders_in(work_.model.directory()); !folders.empty()) {
    warnings.push_back(fmt::format("folders of the model are not copied: {}", folders));
  }
  return warnings;
}

std::string Quantization::method_of(std::size_t tensor) const {
  const bool is_search = options_.config.method == QuantizeMethod::kSearch;
  if (!is_search || !work_.calibration || !work_.calibration->covers(tensor)) return std::string(name(options_.config.method));
  return work_.calibration->has_feedback(tensor) ? "gptq" : "weighted search";
}

CalibrationReport Quantization::describe_calibration() const {
  const Statistics& statistics = work_.calibration->statistics();
  Coverage coverage = statistics.coverage(work_.model, work_.plans);
  return {.covered = coverage.covered,
          .uncovered = std::move(coverage.uncovered),
          .timesteps = statistics.timesteps().size(),
          .recorded_timesteps = statistics.recorded_timesteps(),
          .time_groups = std::max<std::size_t>(work_.calibration->groups(), 1),
          .boundaries = work_.calibration->boundaries()};
}

QuantizeReport Quantization::report() const {
  QuantizeReport report{.source_bytes = work_.model.file_size(), .modality = work_.modality, .warnings = warnings()};
  std::size_t block = 0;
  for (std::size_t i = 0; i < work_.plans.size(); ++i) {
    QualitySums sums;
    for (; block < work_.blocks.size() && work_.blocks[block].tensor == i; ++block) sums.add(figures_[block]);
    if (!work_.is_quantized(i)) {
      ++report.kept;
      continue;
    }
    const TensorInfo& tensor = work_.model.tensors()[i];
    const RowFormat& format = work_.formats[i];
    report.layers.push_back({.name = std::string(tensor.name),
                             .dtype = tensor.dtype,
                             .shape = {tensor.shape.begin(), tensor.shape.end()},
                             .bits = format.bits,
                             .group_size = format.group_size,
                             .parameters = tensor.elements(),
                             .bytes = work_.plans[i].rows * format.stored_bytes(),
                             .planned_bits = planned_bits_[i],
                             .method = method_of(i),
                             .equalized = !format.restore.empty(),
                             .quality = quality_of(sums)});
  }
  if (report.layers.empty() && report.kept > 0) {
    report.warnings.emplace_back(
        "nothing was quantized: every tensor is a vector, has no floats or is kept by its name; weights need "
        "two dimensions or more");
  }
  if (work_.calibration) report.calibration = describe_calibration();
  summarize_layers(report, options_.config.min_accuracy);
  if (!report.passed) report.warnings.push_back(describe_below(report.layers, options_.config));
  return report;
}

// Blocks that an earlier run wrote are compared as they are on the disk.
Result<void> Quantization::measure_skipped(const std::string& directory) {
  if (std::ranges::find(skipped_, true) == skipped_.end()) return {};
  const auto written = open_quantized(directory);
  if (!written) return std::unexpected(written.error());
  std::vector<CodedBuffers> buffers(threads_);
  parallel_for(work_.blocks.size(), threads_, [&](unsigned worker, std::size_t i) {
    const TensorBlock& block = work_.blocks[i];
    if (!skipped_[i] || !work_.is_quantized(block.tensor)) return true;
    CodedBuffers& own = buffers[worker];
    const TensorInfo& tensor = work_.model.tensors()[block.tensor];
    auto read = coder_.read(block, own.in);
    if (read) read = (*written)->read_rows(tensor.name, block.first_row, own.rows(work_.formats[block.tensor], block.rows));
    if (read) {
      figures_[i] = compare_rows(work_.formats[block.tensor], tensor.dtype, own.in, own.packed, own.scales, own.offsets);
      figures_[i].weighted = std::numeric_limits<double>::quiet_NaN();  // not known any more
    }
    const std::scoped_lock lock(mutex_);
    if (!read && !error_) error_ = std::move(read.error());
    return !error_;
  });
  if (error_) return std::unexpected(std::move(*error_));
  return {};
}

// What makes two runs the same work: threads and memory as such do not change a byte.
std::string Quantization::make_key() const {
  QuantizeConfig config = options_.config;
  config.num_threads = 0;
  config.max_memory_limit_mb = 0;
  std::string text = fmt::format("1\n{}\n{}\n{}\n", to_yaml(config), name(work_.modality), files_json(work_.model));
  if (work_.calibration) {
    text += files_json(work_.calibration->statistics().file()) + "\n";
    // Which Hessians are used depends on the memory that there is.
    for (std::size_t i = 0; i < work_.plans.size(); ++i) text += work_.calibration->has_feedback(i) ? '1' : '0';
    text += "\n";
  }
  for (const TensorInfo& tensor : work_.model.tensors()) {
    text += fmt::format("{}\n{} {} {}\n", tensor.name, name(tensor.dtype), to_string(tensor.shape), tensor.begin);
  }
  return hash_of(text);
}

// An output that is older than what it was made of was made of something else; one that is damaged is made again.
bool Quantization::is_finished(const std::string& directory) const {
  const bool is_mlx = options_.config.format == QuantizeFormat::kMlx;
  if ((is_mlx ? finished_mlx_key(directory) : finished_parquet_key(directory)) != work_.key) return false;
  const auto written = open_quantized(directory);
  if (!written || !(*written)->time_boundaries()) return false;
  // By the time of change, which unlike that of the last write nobody can set back.
  struct stat made{};
  const std::string last = fmt::format("{}/{}", directory, is_mlx ? "model.safetensors.index.json" : kParquetMetadataFile);
  if (::stat(last.c_str(), &made) != 0) return false;
  const auto is_older = [&](const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 &&
           std::pair(status.st_ctim.tv_sec, status.st_ctim.tv_nsec) <= std::pair(made.st_ctim.tv_sec, made.st_ctim.tv_nsec);
  };
  const auto is_there = [&](const Companion& companion) {
    return is_older(companion.path) && fs::exists(fmt::format("{}/{}", directory, companion.name));
  };
  // The file that was looked at is written last.
  const auto statistics = work_.calibration ? work_.calibration->statistics().file().files() : std::span<const ModelFile>();
  return std::ranges::all_of(work_.model.files(), is_older, &ModelFile::path) &&
         std::ranges::all_of(statistics, is_older, &ModelFile::path) && std::ranges::all_of((*written)->files(), is_older) &&
         std::ranges::all_of(work_.companions, is_there);
}

Result<QuantizeReport> Quantization::run(const std::string& directory) {
  if (auto prepared = prepare(); !prepared) return std::unexpected(prepared.error());
  work_.key = make_key();
  if (options_.resume) {
    const auto files = describe_files(work_.model);
    if (!files) return std::unexpected(files.error());
    const auto statistics = work_.calibration ? describe_files(work_.calibration->statistics().file()) : std::string();
    if (!statistics) return std::unexpected(statistics.error());
    work_.resume_key = hash_of(work_.key + *files + *statistics);
  }
  work_.source_json = files_json(work_.model);
  if (options_.resume && is_finished(directory)) {
    remove_leftovers(directory);
    return QuantizeReport{.source_bytes = work_.model.file_size(), .modality = work_.modality, .was_done = true};
  }
  const auto output = make(directory);
  if (!output) return std::unexpected(output.error());
  if (auto committed = (*output)->commit(); !committed) return std::unexpected(committed.error());
  if (auto measured = measure_skipped(directory); !measured) return std::unexpected(measured.error());

  QuantizeReport done = report();
  for (const QuantizedOutput::File& file : (*output)->files()) done.files.push_back(file.path);
  done.bytes = bytes_of((*output)->files());
  return done;
}

}  // namespace

Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  if (auto checked = validate(options.config); !checked) return std::unexpected(checked.error());
  if (directory.ends_with(".safetensors")) {
    return fail(Errc::kInvalidArgument, "{}: quantized models are directories: name one without .safetensors", escape(directory));
  }
  for (const ModelFile& file : model.files()) {
    std::error_code different;
    if (!fs::exists(file.path, different)) continue;  // it is in memory
    const fs::path folder = fs::path(file.path).parent_path();
    if (!fs::equivalent(folder.empty() ? "." : folder, directory, different) || different) continue;
    return fail(Errc::kInvalidArgument, "{}: is where the model is read from, and quantizing cannot be undone: name another",
                escape(directory));
  }
  return Quantization(model, options).run(directory);
}

}  // namespace ballast
