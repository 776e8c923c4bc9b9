#include "sink/choose_layers.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/fail.h"
#include "base/text.h"
#include "quantize/bit_budget.h"
#include "quantize/equalization.h"
#include "sink/parquet_block.h"

namespace ballast {
namespace {

constexpr std::uint64_t kSampleRows = 64;
constexpr std::uint64_t kLongSampleRows = 256;

void set_bits(QuantizeWork& work, std::size_t tensor, unsigned bits) {
  work.plans[tensor].bits = bits;
  work.formats[tensor].bits = bits;
}

void release(const QuantizeWork& work, std::size_t tensor) {
  if (work.calibration) work.calibration->release(tensor);
}

// A Hessian would have to be scaled along, so layers that have one are left as they are.
bool may_be_equalized(const QuantizeWork& work, std::size_t tensor) {
  return work.calibration && work.calibration->is_spatial() && work.calibration->covers(tensor) &&
         !work.calibration->has_feedback(tensor);
}

// Of a layer that may have any of the bits there are, unless the user named them.
std::vector<unsigned> bits_to_try(const LayerPlan& plan) {
  std::vector<unsigned> all;
  if (plan.is_fixed) return {plan.bits};
  std::ranges::copy_if(std::array{2U, 3U, 4U, 5U, 6U, 8U}, std::back_inserter(all),
                       [&](unsigned bits) { return bits >= plan.least_bits; });
  return all;
}

// How many bytes a choice of bits makes, in one format or the other.
class Sizes {
 public:
  static Result<Sizes> make(const QuantizeWork& work) {
    Sizes sizes(work);
    if (work.config.format == QuantizeFormat::kMlx) return sizes;
    auto parquet = ParquetSizes::make();
    if (!parquet) return std::unexpected(parquet.error());
    sizes.parquet_ = *parquet;
    return sizes;
  }

  // Of a layer, whose scales and zero points Parquet compresses as it does those of the sample.
  Result<std::uint64_t> layer(std::size_t tensor, CodedBuffers& sample) const {
    constexpr double kSlack = 1.005;  // other rows may be a little harder to compress
    const RowFormat& format = work_.formats[tensor];
    const std::uint64_t rows = work_.plans[tensor].rows;
    if (!parquet_) return rows * format.stored_bytes();
    const auto parameters = parquet_->parameters(sample.filled());
    if (!parameters) return std::unexpected(parameters.error());
    return rows * format.packed_bytes() +
           static_cast<std::uint64_t>(*parameters * kSlack * static_cast<double>(rows * format.groups()));
  }

  // Of all that no choice of bits changes. Headers are as for the bits that layers have now.
  Result<std::uint64_t> fixed() const {
    auto bytes = parquet_ ? parquet_->frame(work_) : mlx_frame_bytes(work_);
    for (std::size_t i = 0; bytes && i < work_.plans.size(); ++i) {
      *bytes += work_.is_quantized(i) ? time_bytes(i) + column_bytes(i) : work_.model.tensors()[i].bytes();
    }
    return bytes;
  }

 private:
  explicit Sizes(const QuantizeWork& work) : work_(work) {}

  // The parameters for groups of timesteps: floats in SafeTensors, and about twice as much as text that is compressed.
  std::uint64_t time_bytes(std::size_t tensor) const {
    return work_.time_groups(tensor) * (work_.plans[tensor].rows + 2) * (parquet_ ? 8 : 4);
  }

  // What restores columns, should they be scaled: a float each and an entry in a header, or text in every block.
  std::uint64_t column_bytes(std::size_t tensor) const {
    constexpr std::uint64_t kEntry = 256;
    if (!may_be_equalized(work_, tensor)) return 0;
    const std::uint64_t columns = work_.plans[tensor].columns;
    const std::uint64_t blocks = work_.plans[tensor].rows / rows_of_block(columns) + 1;
    return kEntry + work_.model.tensors()[tensor].name.size() + (parquet_ ? blocks * columns * 3 : columns * sizeof(float));
  }

  const QuantizeWork& work_;
  std::optional<ParquetSizes> parquet_;
};

Result<std::vector<BitChoice>> try_bits(QuantizeWork& work, const LayerCoder& coder, const Sizes& sizes, std::size_t tensor) {
  std::vector<BitChoice> choices;
  CodedBuffers buffers;
  const LayerPlan& plan = work.plans[tensor];
  for (const unsigned bits : bits_to_try(plan)) {
    set_bits(work, tensor, bits);
    const auto quality = coder.sample(tensor, kLongSampleRows, buffers);
    if (!quality) return std::unexpected(quality.error());
    const auto bytes = sizes.layer(tensor, buffers);
    if (!bytes) return std::unexpected(bytes.error());
    const double error = quality->output_error.value_or(quality->relative_rmse);
    choices.push_back({.bits = bits, .bytes = *bytes, .error = error * error * static_cast<double>(plan.rows * plan.columns)});
  }
  return choices;
}

// What of the ways to scale the columns makes the least error of outputs in a sample; nothing if it is best not to.
Result<std::vector<float>> best_equalization(QuantizeWork& work, const LayerCoder& coder, std::size_t tensor) {
  const auto inputs = coder.inputs(tensor);
  if (!inputs) return std::unexpected(inputs.error());
  const auto largest = coder.largest(tensor, kLongSampleRows);
  if (!largest) return std::unexpected(largest.error());
  const auto plain = coder.sample(tensor, kLongSampleRows);
  if (!plain) return std::unexpected(plain.error());
  double least = plain->output_error.value_or(0);
  std::vector<float> best;
  for (const double alpha : kEqualizations) {
    const std::vector<float> restore = equalize(alpha, (*inputs)->importance, *largest);
    work.formats[tensor].restore = restore;
    const auto quality = coder.sample(tensor, kLongSampleRows);
    work.formats[tensor].restore = {};
    if (!quality) return std::unexpected(quality.error());
    if (quality->cosine_similarity < 0 || quality->output_error.value_or(least) >= least) continue;
    least = *quality->output_error;
    best = restore;
  }
  return best;
}

// What is better in a sample must be so in all rows, and not make the weights worse than they may be.
Result<void> keep_if_better(QuantizeWork& work, const LayerCoder& coder, std::size_t tensor, std::vector<float> restore,
                            unsigned threads) {
  const auto without = coder.measure(tensor, threads);
  if (!without) return std::unexpected(without.error());
  work.restore[tensor] = std::move(restore);
  work.formats[tensor].restore = work.restore[tensor];
  const auto with = coder.measure(tensor, threads);
  if (!with) return std::unexpected(with.error());
  const double least = std::min(work.config.min_accuracy, without->cosine_similarity);
  if (with->output_error.value_or(0) < without->output_error.value_or(0) && with->cosine_similarity >= least) return {};
  work.restore[tensor].clear();
  work.formats[tensor].restore = {};
  return {};
}

}  // namespace

std::unexpected<Error> below_minimum(const QuantizeWork& work, const LayerCoder& coder, std::size_t tensor, double cosine) {
  return coder.fail_tensor(tensor, Errc::kBelowMinimum,
                           fmt::format("cosine {:.5f} at {} bits is below the minimum of {}; nothing was written", cosine,
                                       work.plans[tensor].bits, work.config.min_accuracy));
}

Result<void> raise_bits(QuantizeWork& work, const LayerCoder& coder, unsigned threads) {
  const QuantizeConfig& config = work.config;
  if (config.min_accuracy <= 0) return {};
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    const LayerPlan& plan = work.plans[i];
    while (plan.bits != 0 && (plan.bits < 8 || config.fail_fast)) {
      const auto guess = coder.sample(i, kSampleRows);
      if (!guess) return std::unexpected(guess.error());
      if (1 - guess->cosine_similarity <= (1 - config.min_accuracy) / 2) break;
      const auto exact = coder.measure(i, threads);
      if (!exact) return std::unexpected(exact.error());
      if (exact->cosine_similarity >= config.min_accuracy) break;
      if (config.fail_fast) return below_minimum(work, coder, i, exact->cosine_similarity);
      set_bits(work, i, plan.bits < 4 ? 4 : 8);
    }
    release(work, i);
  }
  return {};
}

Result<void> fit_size(QuantizeWork& work, const LayerCoder& coder) {
  constexpr double kMegabyte = 1e6;
  const auto sizes = Sizes::make(work);
  if (!sizes) return std::unexpected(sizes.error());
  std::vector<std::size_t> tensors;
  std::vector<std::vector<BitChoice>> layers;
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    if (!work.is_quantized(i)) continue;
    auto choices = try_bits(work, coder, *sizes, i);
    if (!choices) return std::unexpected(choices.error());
    release(work, i);
    tensors.push_back(i);
    layers.push_back(std::move(*choices));
  }
  const double target = *work.config.target_model_size_mb * kMegabyte;
  const auto fixed = sizes->fixed();
  if (!fixed) return std::unexpected(fixed.error());
  const std::uint64_t least = std::accumulate(layers.begin(), layers.end(), *fixed,
                                              [](std::uint64_t sum, const auto& choices) { return sum + choices.front().bytes; });
  if (target < static_cast<double>(least)) {
    return fail(Errc::kInvalidArgument, "target_model_size_mb is {}, the smallest that is possible is {:.2f}",
                *work.config.target_model_size_mb, static_cast<double>(least) / kMegabyte + 0.005);
  }
  const auto budget = static_cast<std::uint64_t>(std::min(target, 1e18)) - *fixed;
  const std::vector<std::size_t> chosen = allot_bits(layers, budget);
  for (std::size_t i = 0; i < chosen.size(); ++i) set_bits(work, tensors[i], layers[i][chosen[i]].bits);
  return {};
}

Result<void> equalize_layers(QuantizeWork& work, const LayerCoder& coder, unsigned threads) {
  if (!work.calibration || !work.calibration->is_spatial()) return {};
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    if (!may_be_equalized(work, i)) continue;
    auto best = best_equalization(work, coder, i);
    if (!best) return std::unexpected(best.error());
    if (!best->empty()) {
      if (auto kept = keep_if_better(work, coder, i, std::move(*best), threads); !kept) return kept;
    }
    release(work, i);
  }
  return {};
}

}  // namespace ballast
