#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include <ballast/quantize.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/merge.h"
#include "jobs/quantize/choose_layers.h"
#include "jobs/quantize/input.h"
#include "jobs/quantize/output_plan.h"
#include "jobs/quantize/report.h"
#include "jobs/quantize/up_to_date.h"
#include "jobs/quantize/whole_scales.h"
#include "jobs/quantize/with_tokens.h"
#include "model/sink.h"
#include "model/state.h"
#include "output/file.h"
#include "output/occupied.h"
#include "quantize/gptq.h"
#include "scheme/reader.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of(const std::vector<QuantizedWriter::File>& files) {
  std::uint64_t bytes = 0;
  for (const QuantizedWriter::File& file : files) bytes += file.bytes;
  return bytes;
}

// The number of threads that fit in the memory limit. Each thread has a block's source bytes and its result; a fixed part is for
// the writer, names and headers. The rest is for Hessians.
Result<unsigned> choose_threads(const LayerCoder& coder, const OutputPlan& output) {
  constexpr std::uint64_t kFixed = std::uint64_t{128} << 20;
  const QuantizeConfig& config = coder.config();
  Calibration* const calibration = coder.calibration();
  const std::uint64_t limit = config.max_memory_limit;
  std::uint64_t fixed = kFixed;
  std::uint64_t largest = 1;
  for (const TensorBlock& block : output.blocks) {
    const WeightLayout& weight = output.weights[block.tensor];
    const RowFormat format = weight.format();
    // With the most bits that it may get later.
    const std::uint64_t coded = weight.is_quantized() ? format.columns + format.groups() * 2 * sizeof(float) : 0;
    const bool has_feedback = calibration != nullptr && calibration->has_feedback(block.tensor);
    if (has_feedback) fixed = std::max(fixed, kFixed + 2 * Feedback::bytes(format.columns));
    const std::uint64_t bytes = block.rows * (weight.source_row_bytes() + coded) + (has_feedback ? gptq_bytes(format) : 0);
    if (bytes > limit / 2) {
      return coder.fail_tensor(
          weight.name, Errc::kUnsupported,
          fmt::format("a block takes {} bytes, half of the memory limit is {}; raise max_memory_limit_mb", bytes, limit / 2));
    }
    largest = std::max(largest, bytes);
  }
  const std::uint64_t room = std::max(limit / 3, limit - std::min(limit, fixed));
  const unsigned threads = threads_within(room, largest, config.num_threads);
  const std::uint64_t used = fixed + threads * largest;
  if (calibration != nullptr) calibration->set_room(limit - std::min(limit, used));
  return threads;
}

// Quantizes the blocks of one output plan and writes them.
class Run {
 public:
  Run(const LayerCoder& coder, const OutputPlan& output, const WorkOptions& work, unsigned threads)
      : coder_(coder),
        output_(output),
        work_(work),
        threads_(threads),
        sums_(output.blocks.size()),
        skipped_(output.blocks.size()),
        blocks_left_(output.weights.size()) {}

  Result<void> write(QuantizedWriter& writer) {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < output_.blocks.size(); ++i) {
      skipped_[i] = writer.has(i) ? 1 : 0;
      ++blocks_left_[output_.blocks[i].tensor];
      total += source_bytes(i);
    }
    ModelAccess::expect(coder_.model(), coder_.model().tensors());
    std::vector<CodedBuffers> buffers(threads_);
    return BlockLoop{.work = work_, .total = total, .threads = threads_}.run(
        output_.blocks.size(),
        [&](unsigned worker, std::size_t i) {
          auto done = write_block(writer, i, buffers[worker]);
          if (!done) writer.stop();
          return done;
        },
        [&](std::size_t i) { return BlockDone{.bytes = source_bytes(i), .what = weight_of(i).name}; });
  }

  // Measures the blocks of an earlier run from the files.
  Result<void> measure_skipped(const std::string& directory) {
    if (!has_skipped()) return {};
    const Weights weights = TRY(Weights::open(directory));
    const WeightsReader& written = reader_of(weights);
    std::vector<CodedBuffers> buffers(threads_);
    const auto measure = [&](unsigned worker, std::size_t i) -> Result<void> {
      const WeightLayout& weight = weight_of(i);
      if (skipped_[i] == 0 || !weight.is_quantized()) return {};
      const TensorBlock& block = output_.blocks[i];
      const RowFormat format = weight.format();
      CodedBuffers& own = buffers[worker];
      TRY(coder_.read(weight, block.first_row, block.rows, own.in));
      const Weight* const stored = written.find(weight.name);
      if (stored == nullptr) return coder_.fail_tensor(weight.name, Errc::kCorrupt, "missing from the output");
      if (written.has_codes(*stored)) {
        TRY(written.read_codes(*stored, block.first_row, own.rows(format, block.rows)));
        sums_[i] = compare_rows(format, weight.dtype, own.in, own.packed, own.scales, own.offsets);
      } else {
        std::vector<float> decoded(block.rows * format.columns);
        TRY(written.read_rows(*stored, block.first_row, block.rows, DType::kF32, std::as_writable_bytes(std::span(decoded))));
        sums_[i] = compare_decoded_rows(format, weight.dtype, own.in, decoded);
      }
      sums_[i].weighted = std::numeric_limits<double>::quiet_NaN();  // the files do not record it
      return {};
    };
    return BlockLoop{.work = work_, .threads = threads_}.run(output_.blocks.size(), measure,
                                                             [&](std::size_t i) { return BlockDone{.what = weight_of(i).name}; });
  }

  std::span<const QualitySums> sums() const { return sums_; }
  bool has_skipped() const { return std::ranges::find(skipped_, 1) != skipped_.end(); }
  bool has_time_bias() const { return has_time_bias_; }

 private:
  const WeightLayout& weight_of(std::size_t block) const { return output_.weights[output_.blocks[block].tensor]; }
  std::uint64_t source_bytes(std::size_t block) const { return output_.blocks[block].rows * weight_of(block).source_row_bytes(); }

  Result<void> write_block(QuantizedWriter& writer, std::size_t block, CodedBuffers& buffers) {
    TRY(code_block(writer, block, buffers));
    return finish_block(output_.blocks[block].tensor);
  }

  // With fail_fast, blocks of an earlier run are quantized again to measure them.
  Result<void> code_block(QuantizedWriter& writer, std::size_t block, CodedBuffers& buffers) {
    const TensorBlock& at = output_.blocks[block];
    const WeightLayout& weight = weight_of(block);
    if (skipped_[block] != 0 && !(coder_.config().fail_fast && weight.is_quantized())) return {};
    if (!weight.is_quantized()) {
      TRY(coder_.read(weight, at.first_row, at.rows, buffers.in));
      return writer.write_unquantized(block, buffers.in);
    }
    sums_[block] = TRY(coder_.code(weight, at, buffers));
    if (skipped_[block] != 0) return {};
    const CodedBlock coded = TRY(coder_.finish(at.tensor, weight, buffers));
    if (std::ranges::any_of(coded.time_bias, [](float bias) { return bias != 0; })) has_time_bias_ = true;
    return writer.write(block, coded);
  }

  // With fail_fast, checks a layer after its last block.
  Result<void> finish_block(std::size_t tensor) {
    const std::scoped_lock lock(mutex_);
    if (--blocks_left_[tensor] > 0) return {};
    if (coder_.calibration() != nullptr) coder_.calibration()->drop(tensor);
    if (!coder_.config().fail_fast || !output_.weights[tensor].is_quantized()) return {};
    QualitySums sums;
    for (std::size_t i = 0; i < output_.blocks.size(); ++i) {
      if (output_.blocks[i].tensor == tensor) sums.add(sums_[i]);
    }
    const Quality quality = quality_of(sums);
    if (quality.cosine_similarity >= coder_.config().min_accuracy) return {};
    return below_minimum(coder_, output_.weights[tensor], quality.cosine_similarity);
  }

  const LayerCoder& coder_;
  const OutputPlan& output_;
  const WorkOptions& work_;
  unsigned threads_;
  std::vector<QualitySums> sums_;      // of each block
  std::vector<std::uint8_t> skipped_;  // 1 for blocks of an earlier run, which are measured at the end
  std::mutex mutex_;
  std::vector<std::size_t> blocks_left_;  // of each weight
  std::atomic<bool> has_time_bias_ = false;
};

// Chooses the bits and column scales of layers by measuring.
Result<Plan> choose(const Plan& plan, const LayerCoder& coder, std::optional<SizeFit>& fit, unsigned threads) {
  auto chosen = fit ? fit->choose(plan) : raise_bits(plan, coder, threads);
  if (!chosen && fit) return fail_at(escape(coder.model().path()), chosen.error());
  if (!chosen) return chosen;
  return equalize_layers(TRY(measure_whole_scales(*chosen, coder, threads)), coder, threads);
}

// The inputs to choose().
struct Prepared {
  Modality modality;
  Plan plan;
  std::unique_ptr<Calibration> calibration;  // null without statistics
  LayerCoder coder;
  OutputPlan output;
  unsigned threads;
};

Result<Prepared> prepare(const QuantizeInput& input) {
  const Model& model = input.model();
  const QuantizeOptions& options = input.options;
  const Modality modality = options.config.modality.value_or(model.modality());
  Plan plan = TRY(Plan::make(model, options.config));
  const LayerCoder uncalibrated(model, input.source, options.config, nullptr, options.work);
  std::vector<WeightLayout> weights;
  for (std::size_t i = 0; i < plan.size(); ++i) weights.push_back(uncalibrated.layout(i, plan[i]));
  TRY(uncalibrated.scheme().check_names(model.path(), weights));
  std::unique_ptr<Calibration> calibration;
  if (!options.calibration.empty()) {
    calibration = TRY(Calibration::open(options.calibration, model, plan, options.config, modality, input.arrangement.renamed));
  }
  const LayerCoder coder(model, input.source, options.config, calibration.get(), options.work);
  OutputPlan output = TRY(describe_output(coder, plan, options, modality));
  output.config_members = input.arrangement.config;
  const unsigned threads = TRY(choose_threads(coder, output));
  return Prepared{.modality = modality,
                  .plan = std::move(plan),
                  .calibration = std::move(calibration),
                  .coder = coder,
                  .output = std::move(output),
                  .threads = threads};
}

Result<std::optional<SizeFit>> fit_size(const Prepared& prepared) {
  if (!prepared.coder.config().target_model_size) return std::nullopt;
  auto fit = SizeFit::make(prepared.plan, prepared.coder, prepared.output);
  if (!fit) return fail_at(escape(prepared.coder.model().path()), fit.error());
  return std::move(*fit);
}

// If the output exceeds the target size, writes it again with fewer bits.
Result<QuantizeReport> write_output(const Prepared& prepared, const std::string& directory, const QuantizeOptions& options) {
  const LayerCoder& coder = prepared.coder;
  auto fit = TRY(fit_size(prepared));
  for (unsigned attempt = 1;; ++attempt) {
    const Plan chosen = TRY(choose(prepared.plan, coder, fit, prepared.threads));
    const OutputPlan output = with_layers(prepared.output, coder, chosen, attempt);
    auto writer = TRY(coder.scheme().create_writer(directory, output, options.sync));
    Run run(coder, output, options.work, prepared.threads);
    TRY(run.write(*writer));
    const auto accepted = fit ? fit->accept(bytes_of(writer->files())) : true;
    if (!accepted) {
      writer.reset();
      remove_leftovers(directory);
      return fail_at(escape(coder.model().path()), accepted.error());
    }
    if (!*accepted) continue;
    TRY(writer->commit());
    TRY(run.measure_skipped(directory));
    return make_report({.coder = coder,
                        .output = output,
                        .planned = fit ? chosen : prepared.plan,
                        .sums = run.sums(),
                        .files = writer->files(),
                        .has_time_bias = run.has_time_bias(),
                        .has_skipped = run.has_skipped(),
                        .expected = fit ? std::optional(fit->expected()) : std::nullopt});
  }
}

Result<void> check_directory(const Model& model, const std::string& directory) {
  TRY(check_output_path(directory));
  TRY(check_not_cached(directory));
  if (const std::string_view suffix = file_suffix(directory); !suffix.empty()) {
    return fail(Errc::kInvalidArgument, "{}: a quantized model is a directory; give a name without {}", escape(directory),
                suffix);
  }
  for (const std::string& file : ModelAccess::stored_files(model)) {
    std::error_code different;
    if (!fs::exists(file, different)) continue;  // a model in memory
    const fs::path folder = fs::path(file).parent_path();
    if (!fs::equivalent(folder.empty() ? "." : folder, directory, different) || different) continue;
    return fail(Errc::kInvalidArgument, "{}: the model is read from here; give another output directory", escape(directory));
  }
  return {};
}

// Finds what is wrong with the settings and the output before the model runs over the tokens.
Result<void> check_before_tokens(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  QuantizeOptions without = options;
  without.calibration_tokens = nullptr;
  without.calibration.clear();
  const QuantizeInput input = TRY(make_input(model, without));
  const Prepared prepared = TRY(prepare(input));
  if (options.force) return {};
  return check_free(directory, names_of(prepared.output, options.config.format), options.resume);
}

}  // namespace

Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  TRY(validate(options.config));
  TRY(check_merged(model, options.loras));
  TRY(check_directory(model, directory));
  if (options.calibration_tokens != nullptr) {
    TRY(check_before_tokens(model, directory, options));
    return quantize_with_tokens(model, directory, options);
  }
  const QuantizeInput input = TRY(make_input(model, options));
  const Prepared prepared = TRY(prepare(input));
  if (!options.force) TRY(check_free(directory, names_of(prepared.output, options.config.format), options.resume));
  QuantizeReport report{.source_bytes = prepared.output.source_bytes, .up_to_date = true};
  if (options.resume && is_finished(directory, prepared.output, prepared.coder)) {
    remove_leftovers(directory);
  } else {
    report = TRY(write_output(prepared, directory, input.options));
  }
  report.modality = prepared.modality;
  const std::vector<std::string> notes = input.notes();
  report.notes.insert(report.notes.begin(), notes.begin(), notes.end());
  report.left_out = input.arrangement.left_out;
  return report;
}

Result<bool> is_up_to_date(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  const QuantizeInput input = TRY(make_input(model, options));
  const Prepared prepared = TRY(prepare(input));
  return is_finished(directory, prepared.output, prepared.coder);
}

Result<QuantizePlan> plan_quantize(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  TRY(check_merged(model, options.loras));
  TRY(check_directory(model, directory));
  if (options.calibration_tokens != nullptr) return plan_with_tokens(model, directory, options);
  const QuantizeInput input = TRY(make_input(model, options));
  const Prepared prepared = TRY(prepare(input));
  auto fit = TRY(fit_size(prepared));
  const Plan chosen = TRY(choose(prepared.plan, prepared.coder, fit, prepared.threads));
  QuantizePlan described = describe_plan(prepared.coder, with_layers(prepared.output, prepared.coder, chosen, 1),
                                         prepared.modality, fit ? std::optional(fit->expected()) : std::nullopt);
  described.notes = input.notes();
  described.left_out = input.arrangement.left_out;
  return described;
}

}  // namespace ballast
