#include "jobs/quantize/layer_coder.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include <ballast/convert.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "convert/nonfinite.h"
#include "model/state.h"
#include "quantize/gptq.h"

namespace ballast {

CodedRows CodedBuffers::rows(const RowFormat& format, std::uint64_t count) {
  packed.resize(count * format.packed_bytes());
  scales.resize(count * format.groups());
  offsets.resize(count * format.groups());
  return filled();
}

std::unexpected<Error> LayerCoder::fail_tensor(std::size_t tensor, Errc code, const std::string& message) const {
  return fail(code, "{}: tensor {}: {}", escape(work_.model.path()), quote(work_.model.tensors()[tensor].name), message);
}

Result<std::shared_ptr<const LayerInputs>> LayerCoder::inputs(std::size_t tensor) const {
  if (!work_.calibration) return std::make_shared<const LayerInputs>();
  return work_.calibration->inputs(tensor);
}

Result<void> LayerCoder::read(const TensorBlock& block, std::vector<std::byte>& into) const {
  const std::uint64_t row_bytes = work_.source_row_bytes(block.tensor);
  into.resize(block.rows * row_bytes);
  return work_.model.read_into(work_.model.tensors()[block.tensor].name, block.first_row * row_bytes, into);
}

Result<QualitySums> LayerCoder::code_rows(std::size_t tensor, std::uint64_t rows, CodedBuffers& buffers) const {
  const RowFormat& format = work_.formats[tensor];
  const DType dtype = work_.model.tensors()[tensor].dtype;
  const auto known = inputs(tensor);
  if (!known) return std::unexpected(known.error());
  const CodedRows out = buffers.rows(format, rows);
  if (!(*known)->feedback) return quantize_rows(work_.config.method, format, dtype, buffers.in, (*known)->importance, out);
  const GptqSums gptq = gptq_rows(format, dtype, buffers.in, *(*known)->feedback, out, (*known)->importance);
  QualitySums sums = gptq.quality;
  sums.weighted_error = gptq.output_error;  // in which is what is known of inputs that go together
  return sums;
}

Result<QualitySums> LayerCoder::code(const TensorBlock& block, CodedBuffers& buffers) const {
  if (auto done = read(block, buffers.in); !done) return std::unexpected(done.error());
  const auto sums = code_rows(block.tensor, block.rows, buffers);
  if (!sums) return sums;
  if (auto checked = check(block, *sums, buffers); !checked) return std::unexpected(checked.error());
  return sums;
}

Result<CodedBlock> LayerCoder::finish(std::size_t tensor, CodedBuffers& buffers) const {
  CodedBlock block{
      .rows = buffers.filled(), .count = buffers.in.size() / work_.source_row_bytes(tensor), .time_bias = {}, .activations = {}};
  const std::size_t groups = work_.time_groups(tensor);
  if (groups == 0) return block;
  const auto known = inputs(tensor);
  if (!known) return std::unexpected(known.error());
  const GroupStatistics& times = *(*known)->time_groups;
  buffers.time_bias.resize(groups * block.count);
  make_time_bias(work_.formats[tensor], work_.model.tensors()[tensor].dtype, buffers.in, block.rows, times, buffers.time_bias);
  block.time_bias = buffers.time_bias;
  block.activations = activation_scales(times);
  return block;
}

Result<void> LayerCoder::check(const TensorBlock& block, const QualitySums& sums, const CodedBuffers& buffers) const {
  if (!std::isfinite(sums.weights)) {
    const TensorInfo& tensor = work_.model.tensors()[block.tensor];
    const std::uint64_t count = count_nonfinite(tensor.dtype, buffers.in);
    const std::string rows = fmt::format("in rows {} to {}", block.first_row, block.first_row + block.rows - 1);
    if (count == 0) {
      return fail_tensor(block.tensor, Errc::kUnsupported,
                         fmt::format("values of {} {} are too large for F32", name(tensor.dtype), rows));
    }
    return fail_tensor(block.tensor, Errc::kCorrupt,
                       fmt::format("{} of {} values {} are NaN or infinite", count, sums.count, rows));
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(buffers.scales, is_finite) || !std::ranges::all_of(buffers.offsets, is_finite)) {
    return fail_tensor(block.tensor, Errc::kUnsupported, "its values are too far apart for the scale of a group");
  }
  return {};
}

// Runs at equal distances.
Result<void> LayerCoder::read_sample(std::size_t tensor, const SampleRows& rows, CodedBuffers& buffers) const {
  const LayerPlan& plan = work_.plans[tensor];
  const std::uint64_t row_bytes = work_.source_row_bytes(tensor);
  const std::uint64_t count =
      std::min(std::clamp<std::uint64_t>(kBlockValues / plan.columns, 1, std::max<std::uint64_t>(rows.most, 1)), plan.rows);
  const std::uint64_t runs = (count + rows.in_a_run - 1) / rows.in_a_run;
  buffers.in.resize(count * row_bytes);
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::uint64_t first = i * count / runs;
    const std::uint64_t length = (i + 1) * count / runs - first;
    ranges.push_back({.offset = i * plan.rows / runs * row_bytes,
                      .out = std::span(buffers.in).subspan(first * row_bytes, length * row_bytes)});
  }
  return ModelAccess::read_parts(work_.model, work_.model.tensors()[tensor], std::move(ranges));
}

Result<Quality> LayerCoder::try_sample(std::size_t tensor, CodedBuffers& buffers) const {
  if (progress_ && !progress_(0, 0, work_.model.tensors()[tensor].name)) return fail(Errc::kCancelled, "cancelled");
  const std::uint64_t rows = buffers.in.size() / work_.source_row_bytes(tensor);
  const auto sums = code_rows(tensor, rows, buffers);
  if (!sums) return std::unexpected(sums.error());
  const TensorBlock block{.tensor = tensor, .first_row = 0, .rows = rows, .number = 0, .count = 1};
  if (!check(block, *sums, buffers)) return Quality{.cosine_similarity = -1};  // measuring it all finds the words for it
  return quality_of(*sums);
}

Result<Quality> LayerCoder::measure(std::size_t tensor, unsigned threads) const {
  std::vector<TensorBlock> blocks;
  std::ranges::copy_if(work_.blocks, std::back_inserter(blocks), [&](const TensorBlock& b) { return b.tensor == tensor; });
  std::vector<QualitySums> sums(blocks.size());
  std::vector<CodedBuffers> buffers(threads);
  std::optional<Error> error;
  std::mutex mutex;
  parallel_for(blocks.size(), threads, [&](unsigned worker, std::size_t i) {
    auto coded = code(blocks[i], buffers[worker]);
    const std::scoped_lock lock(mutex);
    if (coded) sums[i] = *coded;
    if (!coded && !error) error = std::move(coded.error());
    if (!error && progress_ && !progress_(0, 0, work_.model.tensors()[tensor].name)) {
      error = Error{.code = Errc::kCancelled, .message = "cancelled"};
    }
    return !error;
  });
  if (error) return std::unexpected(std::move(*error));
  QualitySums all;
  for (const QualitySums& block : sums) all.add(block);
  return quality_of(all);
}

Result<std::vector<float>> LayerCoder::largest(std::size_t tensor, const CodedBuffers& buffers) const {
  const std::uint64_t columns = work_.plans[tensor].columns;
  std::vector<float> values(buffers.in.size() / work_.source_row_bytes(tensor) * columns);
  const auto converted =
      convert_values(work_.model.tensors()[tensor].dtype, buffers.in, DType::kF32, std::as_writable_bytes(std::span(values)));
  if (!converted) return std::unexpected(converted.error());
  std::vector<float> most(columns, 0.0F);
  for (std::size_t i = 0; i < values.size(); ++i) most[i % columns] = std::max(most[i % columns], std::abs(values[i]));
  return most;
}

}  // namespace ballast
