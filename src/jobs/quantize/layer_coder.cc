#include "jobs/quantize/layer_coder.h"

#include <algorithm>
#include <cmath>

#include <ballast/convert.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/time_bias.h"
#include "convert/nonfinite.h"
#include "model/state.h"
#include "quantize/gptq.h"
#include "quantize/guessed_importance.h"

namespace ballast {

CodedRows CodedBuffers::rows(const RowFormat& format, std::uint64_t count) {
  packed.resize(count * format.packed_bytes());
  scales.resize(count * format.groups());
  offsets.resize(count * format.groups());
  return filled();
}

LayerCoder::LayerCoder(const Model& model, const Model& source, const QuantizeConfig& config, Calibration* calibration,
                       const WorkOptions& work)
    : model_(model),
      source_(source),
      config_(config),
      scheme_(scheme_of(config.format)),
      calibration_(calibration),
      work_(work) {}

WeightLayout LayerCoder::layout(std::size_t tensor, const LayerPlan& plan) const {
  const TensorInfo& info = model_.tensors()[tensor];
  if (!plan.is_quantized()) {
    WeightLayout layout{
        .name = std::string(info.name), .dtype = info.dtype, .shape = {info.shape.begin(), info.shape.end()}, .restore = {}};
    // Rows of bytes: one for each index of the first dimension if these are whole bytes, else a single one.
    const std::uint64_t first = info.shape.empty() ? 1 : info.shape.front();
    layout.columns = first != 0 && info.bytes() % first == 0 ? info.bytes() / first : info.bytes();
    layout.rows = layout.columns == 0 ? 0 : info.bytes() / layout.columns;
    return layout;
  }
  WeightLayout layout = layout_of(scheme_, info, plan);
  if (calibration_ != nullptr && calibration_->covers(tensor)) {
    layout.time_groups = calibration_->groups();
    layout.has_activation_scales = layout.time_groups > 0 && calibration_->has_ranges(tensor);
  }
  return layout;
}

std::unexpected<Error> LayerCoder::fail_tensor(std::string_view tensor, Errc code, const std::string& message) const {
  return fail(code, "{}: tensor {}: {}", escape(model_.path()), quote(tensor), message);
}

Result<std::shared_ptr<const LayerInputs>> LayerCoder::inputs(std::size_t tensor) const {
  if (calibration_ == nullptr) return std::make_shared<const LayerInputs>();
  return calibration_->inputs(tensor);
}

Result<void> LayerCoder::read(const WeightLayout& layout, std::uint64_t first_row, std::uint64_t rows,
                              std::vector<std::byte>& into) const {
  const std::uint64_t row_bytes = layout.source_row_bytes();
  into.resize(rows * row_bytes);
  return model_.read_into(layout.name, first_row * row_bytes, into);
}

Result<void> LayerCoder::read_runs(std::size_t tensor, std::uint64_t row_bytes, std::span<const RowRun> runs,
                                   std::vector<std::byte>& into) const {
  std::uint64_t rows = 0;
  for (const RowRun& run : runs) rows += run.count;
  into.resize(rows * row_bytes);
  std::vector<Range> ranges;
  std::uint64_t at = 0;
  for (const RowRun& run : runs) {
    ranges.push_back({.offset = run.first * row_bytes, .out = std::span(into).subspan(at, run.count * row_bytes)});
    at += run.count * row_bytes;
  }
  return ModelAccess::read_parts(model_, model_.tensors()[tensor], std::move(ranges));
}

Result<std::shared_ptr<const std::vector<float>>> LayerCoder::guess(std::size_t tensor, const WeightLayout& layout) const {
  if (config_.method != QuantizeMethod::kAuto) return std::make_shared<const std::vector<float>>();
  const std::scoped_lock lock(guesses_->mutex);
  auto& known = guesses_->of_tensors[tensor];
  if (known) return known;
  GuessedImportance guessed(layout.columns);
  const std::uint64_t row_bytes = layout.source_row_bytes();
  const std::vector<RowRun> runs = rows_to_guess_from(layout.rows);
  const std::uint64_t at_once = std::max<std::uint64_t>(rows_of_block(layout.columns) / runs.front().count, 1);
  std::vector<std::byte> rows;
  for (std::size_t first = 0; first < runs.size(); first += at_once) {
    TRY(read_runs(tensor, row_bytes, std::span(runs).subspan(first, std::min(at_once, runs.size() - first)), rows));
    guessed.add(layout.dtype, rows);
  }
  known = std::make_shared<const std::vector<float>>(guessed.importance());
  return known;
}

Result<QualitySums> LayerCoder::code_rows(std::size_t tensor, const WeightLayout& layout, std::uint64_t rows,
                                          CodedBuffers& buffers) const {
  const RowFormat format = layout.format();
  const auto known = TRY(inputs(tensor));
  const CodedRows out = buffers.rows(format, rows);
  if (known->importance.empty()) {
    const auto guessed = TRY(guess(tensor, layout));
    QualitySums sums = quantize_rows(config_.method, format, layout.dtype, buffers.in, *guessed, out);
    sums.weighted = sums.weighted_error = 0;  // not measured inputs
    return sums;
  }
  if (!known->feedback) return quantize_rows(config_.method, format, layout.dtype, buffers.in, known->importance, out);
  const GptqSums gptq = gptq_rows(format, layout.dtype, buffers.in, *known->feedback, out, known->importance);
  QualitySums sums = gptq.quality;
  sums.weighted_error = gptq.output_error;  // includes the correlations of inputs
  return sums;
}

Result<QualitySums> LayerCoder::code(const WeightLayout& layout, const TensorBlock& block, CodedBuffers& buffers) const {
  TRY(read(layout, block.first_row, block.rows, buffers.in));
  const QualitySums sums = TRY(code_rows(block.tensor, layout, block.rows, buffers));
  TRY(check(layout, block, sums, buffers));
  return sums;
}

Result<CodedBlock> LayerCoder::finish(std::size_t tensor, const WeightLayout& layout, CodedBuffers& buffers) const {
  CodedBlock block{
      .rows = buffers.filled(), .count = buffers.in.size() / layout.source_row_bytes(), .time_bias = {}, .activations = {}};
  if (layout.time_groups == 0) return block;
  const auto known = TRY(inputs(tensor));
  const GroupStatistics& times = *known->time_groups;
  buffers.time_bias.resize(layout.time_groups * block.count);
  make_time_bias(layout.format(), layout.dtype, buffers.in, block.rows, times, buffers.time_bias);
  block.time_bias = buffers.time_bias;
  block.activations = activation_scales(times);
  return block;
}

Result<void> LayerCoder::check(const WeightLayout& layout, const TensorBlock& block, const QualitySums& sums,
                               const CodedBuffers& buffers) const {
  if (!std::isfinite(sums.weights)) {
    const std::uint64_t count = count_nonfinite(layout.dtype, buffers.in);
    const std::string rows = fmt::format("in rows {} to {}", block.first_row, block.first_row + block.rows - 1);
    if (count == 0) {
      return fail_tensor(layout.name, Errc::kUnsupported,
                         fmt::format("values of {} {} are too large for F32", name(layout.dtype), rows));
    }
    return fail_tensor(layout.name, Errc::kCorrupt,
                       fmt::format("{} of {} values {} {} NaN or infinite; repair the weights, or leave the tensor unquantized "
                                   "with sensitive_layer_names",
                                   count, sums.count, rows, count == 1 ? "is" : "are"));
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(buffers.scales, is_finite) || !std::ranges::all_of(buffers.offsets, is_finite)) {
    return fail_tensor(layout.name, Errc::kUnsupported, "the range of its values is too large for the scale of a group");
  }
  return {};
}

// Reads runs of rows at equal distances.
Result<void> LayerCoder::read_sample(std::size_t tensor, const WeightLayout& layout, const SampleRows& rows,
                                     CodedBuffers& buffers) const {
  const std::uint64_t row_bytes = layout.source_row_bytes();
  const std::uint64_t count =
      std::min(std::clamp<std::uint64_t>(kBlockValues / layout.columns, 1, std::max<std::uint64_t>(rows.most, 1)), layout.rows);
  const std::uint64_t runs = (count + rows.in_a_run - 1) / rows.in_a_run;
  buffers.in.resize(count * row_bytes);
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::uint64_t first = i * count / runs;
    const std::uint64_t length = (i + 1) * count / runs - first;
    ranges.push_back({.offset = i * layout.rows / runs * row_bytes,
                      .out = std::span(buffers.in).subspan(first * row_bytes, length * row_bytes)});
  }
  return ModelAccess::read_parts(model_, model_.tensors()[tensor], std::move(ranges));
}

Result<void> LayerCoder::report_trial(std::string_view tensor) const {
  if (!report(work_, 0, 0, tensor)) return fail(Errc::kCancelled, "cancelled");
  return {};
}

Result<Quality> LayerCoder::try_sample(std::size_t tensor, const WeightLayout& layout, CodedBuffers& buffers) const {
  TRY(report_trial(layout.name));
  const std::uint64_t rows = buffers.in.size() / layout.source_row_bytes();
  const QualitySums sums = TRY(code_rows(tensor, layout, rows, buffers));
  const TensorBlock block{.tensor = tensor, .first_row = 0, .rows = rows, .number = 0, .count = 1};
  if (!check(layout, block, sums, buffers)) return Quality{.cosine_similarity = -1};  // measure() will report the error
  return quality_of(sums);
}

Result<Quality> LayerCoder::measure(std::size_t tensor, const WeightLayout& layout, unsigned threads) const {
  std::vector<TensorBlock> blocks = cut_blocks({&layout, 1});
  for (TensorBlock& block : blocks) block.tensor = tensor;
  std::vector<QualitySums> sums(blocks.size());
  std::vector<CodedBuffers> buffers(threads);
  TRY((BlockLoop{.work = work_, .threads = threads}.run(
      blocks.size(),
      [&](unsigned worker, std::size_t i) -> Result<void> {
        sums[i] = TRY(code(layout, blocks[i], buffers[worker]));
        return {};
      },
      [&](std::size_t) { return BlockDone{.what = layout.name}; })));
  QualitySums all;
  for (const QualitySums& block : sums) all.add(block);
  return quality_of(all);
}

Result<std::vector<float>> LayerCoder::largest(const WeightLayout& layout, const CodedBuffers& buffers) const {
  std::vector<float> values(buffers.in.size() / layout.source_row_bytes() * layout.columns);
  TRY(convert_values(layout.dtype, buffers.in, DType::kF32, std::as_writable_bytes(std::span(values))));
  std::vector<float> most(layout.columns, 0.0F);
  for (std::size_t i = 0; i < values.size(); ++i) {
    most[i % layout.columns] = std::max(most[i % layout.columns], std::abs(values[i]));
  }
  return most;
}

}  // namespace ballast
