#include "jobs/calibrate/sequential.h"

#include <span>
#include <utility>
#include <vector>

#include "base/block_loop.h"
#include "base/try.h"
#include "jobs/quantize/input.h"
#include "jobs/quantize/layer_coder.h"
#include "jobs/quantize/whole_scales.h"

namespace ballast {
namespace {

// The bits of each tensor of the model: those that its place in the output has.
Result<std::vector<unsigned>> bits_of(const QuantizeInput& input) {
  const Plan plan = TRY(Plan::make(input.model(), input.options.config));
  std::map<std::string_view, unsigned> found;
  for (std::size_t i = 0; i < plan.size(); ++i) found.emplace(input.model().tensors()[i].name, plan[i].bits);
  std::vector<unsigned> bits;
  for (const TensorInfo& tensor : input.source.tensors()) {
    const auto renamed = input.arrangement.renamed.find(tensor.name);
    const bool has_name = renamed != input.arrangement.renamed.end() && !renamed->second.empty();
    const auto place = found.find(has_name ? std::string_view(renamed->second.front()) : tensor.name);
    bits.push_back(place == found.end() ? 0 : place->second);
  }
  return bits;
}

}  // namespace

Result<SequentialQuantizer> SequentialQuantizer::make(const Model& model, const QuantizeConfig& config, const WorkOptions& work) {
  const QuantizeInput input = TRY(make_input(model, {.config = config}));
  const std::vector<unsigned> bits = TRY(bits_of(input));
  QuantizeConfig own = config;
  own.sensitive_layer_names.clear();
  own.sensitive_layer_patterns.clear();
  own.layer_bit_widths.clear();
  own.target_model_size.reset();
  own.enable_time_aware = false;
  own.enable_spatial = false;
  Plan plan = TRY(Plan::make(model, own)).with_bits(bits);
  const LayerCoder coder(model, model, own, nullptr, work);
  plan = TRY(measure_whole_scales(plan, coder, thread_count(work.threads)));
  return SequentialQuantizer(model, std::move(own), std::move(plan), {.threads = work.threads, .stop = work.stop});
}

Result<void> SequentialQuantizer::quantize(DecoderLayer& layer, const std::string& statistics) const {
  const auto calibration = TRY(Calibration::open(statistics, *model_, plan_, config_, Modality::kText));
  const LayerCoder coder(*model_, *model_, config_, calibration.get(), work_);
  std::vector<CodedBuffers> buffers(thread_count(work_.threads));
  const auto replace = [&](Linear& linear) -> Result<void> {
    const TensorInfo* const tensor = model_->find(linear.place.tensor);
    const auto index = static_cast<std::size_t>(tensor - model_->tensors().data());
    if (!plan_[index].is_quantized()) return {};
    const WeightLayout layout = coder.layout(index, plan_[index]);
    const std::uint64_t at_once = layout.format().block_rows();
    const auto code = [&](unsigned worker, std::size_t i) -> Result<void> {
      const std::uint64_t first = i * at_once;
      const std::uint64_t rows = std::min(at_once, linear.out - first);
      const TensorBlock block{
          .tensor = index, .first_row = linear.place.first_row + first, .rows = rows, .number = 0, .count = 1};
      TRY(coder.code(layout, block, buffers[worker]));
      dequantize_rows(layout.format(), buffers[worker].packed, buffers[worker].scales, buffers[worker].offsets,
                      std::span(linear.weight).subspan(first * linear.in, rows * linear.in));
      return {};
    };
    TRY((BlockLoop{.work = work_}.run((linear.out + at_once - 1) / at_once, code, [](std::size_t) { return BlockDone{}; })));
    calibration->drop(index);
    return {};
  };
  return layer.change_linears(replace);
}

}  // namespace ballast
