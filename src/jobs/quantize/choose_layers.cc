#include "jobs/quantize/choose_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/fail.h"
#include "base/text.h"
#include "plan/bit_budget.h"
#include "calibrate/equalization.h"
#include "scheme/parquet/block.h"

namespace ballast {
namespace {

constexpr LayerCoder::SampleRows kSampleRows{.most = 64, .in_a_run = 8};
constexpr LayerCoder::SampleRows kLongSampleRows{.most = 256, .in_a_run = 1};

void set_bits(QuantizeWork& work, std::size_t tensor, unsigned bits) {
  work.plans[tensor].bits = bits;
  work.formats[tensor].bits = bits;
}

// What restores columns that are scaled; nothing if they are not.
void set_scales(QuantizeWork& work, std::size_t tensor, std::vector<float> restore) {
  work.restore[tensor] = std::move(restore);
  work.formats[tensor].restore = work.restore[tensor];
}

void release(const QuantizeWork& work, std::size_t tensor) {
  if (work.calibration) work.calibration->release(tensor);
}

bool may_be_equalized(const QuantizeWork& work, std::size_t tensor) {
  return work.calibration && work.calibration->is_spatial() && work.calibration->covers(tensor);
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

  // Of a layer, whose scales and so on Parquet compresses as it does those of the sample's second half: the first has the start
  // of a page to pay for, which layers share unless they are large.
  Result<std::uint64_t> layer(std::size_t tensor, const LayerCoder& coder, CodedBuffers& sample) const {
    const RowFormat& format = work_.formats[tensor];
    const std::uint64_t rows = work_.plans[tensor].rows;
    if (!parquet_) return rows * format.stored_bytes();
    const auto block = coder.finish(tensor, sample);
    if (!block) return std::unexpected(block.error());
    const auto all = parquet_->parameters(work_, *block, block->count);
    const auto half = parquet_->parameters(work_, *block, block->count / 2);
    if (!all || !half) return all ? half : all;
    const std::uint64_t more = *all - std::min(*all, *half);
    const std::uint64_t more_rows = block->count - block->count / 2;
    return rows * format.packed_bytes() + (more * rows + more_rows - 1) / more_rows;
  }

  // Of all that no choice of bits changes.
  Result<std::uint64_t> fixed() const {
    auto bytes = parquet_ ? parquet_->frame(work_) : mlx_bytes(work_);
    for (std::size_t i = 0; bytes && i < work_.plans.size(); ++i) {
      if (!parquet_ && work_.is_quantized(i)) *bytes -= work_.plans[i].rows * work_.formats[i].stored_bytes();
      if (parquet_ && !work_.is_quantized(i)) *bytes += work_.model.tensors()[i].bytes();
    }
    return bytes;
  }

 private:
  explicit Sizes(const QuantizeWork& work) : work_(work) {}

  const QuantizeWork& work_;
  std::optional<ParquetSizes> parquet_;
};

Result<std::vector<BitChoice>> try_bits(QuantizeWork& work, const LayerCoder& coder, const Sizes& sizes, std::size_t tensor) {
  std::vector<BitChoice> choices;
  CodedBuffers buffers;
  const LayerPlan& plan = work.plans[tensor];
  if (auto read = coder.read_sample(tensor, kLongSampleRows, buffers); !read) return std::unexpected(read.error());
  for (const unsigned bits : bits_to_try(plan)) {
    set_bits(work, tensor, bits);
    const auto quality = coder.try_sample(tensor, buffers);
    if (!quality) return std::unexpected(quality.error());
    const auto bytes = sizes.layer(tensor, coder, buffers);
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
  CodedBuffers buffers;
  if (auto read = coder.read_sample(tensor, kLongSampleRows, buffers); !read) return std::unexpected(read.error());
  const auto largest = coder.largest(tensor, buffers);
  if (!largest) return std::unexpected(largest.error());
  const auto plain = coder.try_sample(tensor, buffers);
  if (!plain) return std::unexpected(plain.error());
  double least = plain->output_error.value_or(0);
  std::vector<float> best;
  for (const double alpha : kEqualizations) {
    const std::vector<float> restore = equalize(alpha, (*inputs)->importance, *largest);
    work.formats[tensor].restore = restore;
    const auto quality = coder.try_sample(tensor, buffers);
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
  set_scales(work, tensor, std::move(restore));
  const auto with = coder.measure(tensor, threads);
  if (!with) return std::unexpected(with.error());
  const double least = std::min(work.config.min_accuracy, without->cosine_similarity);
  if (with->output_error.value_or(0) < without->output_error.value_or(0) && with->cosine_similarity >= least) return {};
  set_scales(work, tensor, {});
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
  CodedBuffers buffers;
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    const LayerPlan& plan = work.plans[i];
    const auto is_open = [&] { return plan.bits != 0 && (plan.bits < 8 || config.fail_fast); };
    if (!is_open()) continue;
    if (auto read = coder.read_sample(i, kSampleRows, buffers); !read) return read;
    while (is_open()) {
      const auto guess = coder.try_sample(i, buffers);
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

// How columns are scaled, and what that takes, is guessed as for the bits that layers have without a target.
Result<SizeFit> SizeFit::make(QuantizeWork& work, const LayerCoder& coder) {
  constexpr std::uint64_t kDoubt = 25;  // sizes are known to this part, and much better where layers are large
  constexpr double kMegabyte = 1e6;
  constexpr double kMost = 1e18;
  SizeFit fit;
  fit.target_ = static_cast<std::uint64_t>(std::min(*work.config.target_model_size_mb * kMegabyte, kMost));
  fit.most_uniform_ = fit.target_ + fit.target_ / kDoubt;
  const auto sizes = Sizes::make(work);
  if (!sizes) return std::unexpected(sizes.error());
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    if (!work.is_quantized(i)) continue;
    if (may_be_equalized(work, i)) {
      auto best = best_equalization(work, coder, i);
      if (!best) return std::unexpected(best.error());
      set_scales(work, i, std::move(*best));
    }
    auto choices = try_bits(work, coder, *sizes, i);
    if (!choices) return std::unexpected(choices.error());
    release(work, i);
    fit.tensors_.push_back(i);
    fit.layers_.push_back(std::move(*choices));
  }
  const auto fixed = sizes->fixed();  // with headers of the most bits, which were tried last
  if (!fixed) return std::unexpected(fixed.error());
  fit.fixed_ = *fixed;
  return fit;
}

std::unexpected<Error> SizeFit::too_small(const QuantizeWork& work, std::uint64_t least, bool is_known) {
  const double megabytes = std::ceil(static_cast<double>(least) / 1e3) / 1e3;
  return fail(Errc::kInvalidArgument, "target_model_size_mb is {}, the smallest that is possible is {}{:.3f}",
              *work.config.target_model_size_mb, is_known ? "" : "about ", megabytes);
}

Result<void> SizeFit::choose(QuantizeWork& work) {
  const std::uint64_t least = std::accumulate(layers_.begin(), layers_.end(), fixed_,
                                              [](std::uint64_t sum, const auto& choices) { return sum + choices.front().bytes; });
  if (tries_ == 0 && least > most_uniform_) {
    // What Parquet compresses may turn out a little larger, and this is to be possible.
    const bool is_known = work.config.format == QuantizeFormat::kMlx && !(work.calibration && work.calibration->is_spatial());
    return too_small(work, is_known ? least : least + least / 100, is_known);
  }
  ++tries_;
  const std::int64_t target = static_cast<std::int64_t>(target_) - missed_;
  const auto beyond_fixed = [&](std::uint64_t bytes) { return bytes - std::min(bytes, fixed_); };
  chosen_ = allot_bits(layers_, target < 0 ? 0 : beyond_fixed(static_cast<std::uint64_t>(target)), beyond_fixed(most_uniform_));
  if (chosen_.choices.empty()) chosen_.choices.resize(layers_.size());  // no more than these can be tried
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    set_bits(work, tensors_[i], layers_[i][chosen_.choices[i]].bits);
    set_scales(work, tensors_[i], {});
  }
  return {};
}

Result<bool> SizeFit::accept(const QuantizeWork& work, std::uint64_t made) {
  if (made <= target_) return true;
  if (std::ranges::all_of(chosen_.choices, [](std::size_t choice) { return choice == 0; })) return too_small(work, made, true);
  const std::uint64_t expected = fixed_ + chosen_.bytes;
  if (chosen_.is_uniform) most_uniform_ = expected - 1;
  // Guesses are off by about as much for any choice. What is off twice has something to it that is not known.
  missed_ = static_cast<std::int64_t>(made - expected) + (tries_ < 2 ? 0 : static_cast<std::int64_t>(target_ / 100));
  return false;
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
