#include "jobs/quantize/choose_layers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/equalization.h"

namespace ballast {
namespace {

constexpr LayerCoder::SampleRows kSampleRows{.most = 64, .in_a_run = 8};
constexpr std::array<unsigned, 6> kAllBits{2, 3, 4, 5, 6, 8};
constexpr LayerCoder::SampleRows kLongSampleRows{.most = 256, .in_a_run = 1};

void release(const LayerCoder& coder, std::size_t tensor) {
  if (coder.calibration() != nullptr) coder.calibration()->release(tensor);
}

bool may_be_equalized(const LayerCoder& coder, std::size_t tensor) {
  const Calibration* const calibration = coder.calibration();
  return calibration != nullptr && calibration->is_spatial() && calibration->covers(tensor);
}

// All bits that a layer may have, or those that the user set.
std::vector<unsigned> bits_to_try(const LayerPlan& plan) {
  std::vector<unsigned> all;
  if (plan.is_fixed) return {plan.bits};
  std::ranges::copy_if(kAllBits, std::back_inserter(all), [&](unsigned bits) { return bits >= plan.least_bits; });
  return all;
}

WeightLayout with_bits(WeightLayout layout, unsigned bits) {
  layout.bits = bits;
  return layout;
}

WeightLayout with_restore(WeightLayout layout, std::vector<float> restore) {
  layout.restore = std::move(restore);
  return layout;
}

// How much the squared error of each tensor counts: by its size, or by the square root of it if the error is that of the outputs
// of a layer, because the outputs of small layers matter as well. Output layers are as large as they matter.
std::vector<double> error_weights(const Plan& plan, const LayerCoder& coder) {
  std::vector<double> weights;
  std::vector<std::size_t> layers;
  double parameters = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    weights.push_back(static_cast<double>(plan[i].rows * plan[i].columns));
    const bool is_covered = coder.calibration() != nullptr && coder.calibration()->covers(i);
    if (!is_covered || coder.model().tensors()[i].name.ends_with("lm_head.weight")) continue;
    layers.push_back(i);
    parameters += weights.back();
  }
  for (const std::size_t layer : layers)
    weights[layer] = std::sqrt(weights[layer] * parameters / static_cast<double>(layers.size()));
  return weights;
}

Result<std::vector<BitChoice>> try_bits(const LayerCoder& coder, const OutputPlan& output, const SizeModel& sizes,
                                        std::size_t tensor, const LayerPlan& plan, const WeightLayout& layout, double weight) {
  std::vector<BitChoice> choices;
  CodedBuffers buffers;
  TRY(coder.read_sample(tensor, layout, kLongSampleRows, buffers));
  for (const unsigned bits : bits_to_try(plan)) {
    const WeightLayout tried = with_bits(layout, bits);
    const Quality quality = TRY(coder.try_sample(tensor, tried, buffers));
    const CodedBlock sample = TRY(coder.finish(tensor, tried, buffers));
    const std::uint64_t bytes = TRY(sizes.weight_bytes(output, tried, sample));
    const double error = quality.output_error.value_or(quality.relative_rmse);
    choices.push_back({.bits = bits, .bytes = bytes, .error = error * error * weight});
  }
  return choices;
}

// The column scales with the least output error in a sample; empty if no scaling is best.
Result<std::vector<float>> best_equalization(const LayerCoder& coder, std::size_t tensor, const WeightLayout& layout) {
  const auto inputs = TRY(coder.inputs(tensor));
  CodedBuffers buffers;
  TRY(coder.read_sample(tensor, layout, kLongSampleRows, buffers));
  const std::vector<float> largest = TRY(coder.largest(layout, buffers));
  const Quality plain = TRY(coder.try_sample(tensor, layout, buffers));
  double least = plain.output_error.value_or(0);
  std::vector<float> best;
  for (const double alpha : kEqualizations) {
    const WeightLayout tried = with_restore(layout, equalize(alpha, inputs->importance, largest));
    const Quality quality = TRY(coder.try_sample(tensor, tried, buffers));
    if (quality.cosine_similarity < 0 || quality.output_error.value_or(least) >= least) continue;
    least = *quality.output_error;
    best = tried.restore;
  }
  return best;
}

// Confirms on all rows that scaling lowers the output error and keeps the weights above min_accuracy.
Result<bool> is_better(const LayerCoder& coder, std::size_t tensor, const WeightLayout& plain, const WeightLayout& scaled,
                       unsigned threads) {
  const Quality without = TRY(coder.measure(tensor, plain, threads));
  const Quality with = TRY(coder.measure(tensor, scaled, threads));
  const double least = std::min(coder.config().min_accuracy, without.cosine_similarity);
  return with.output_error.value_or(0) < without.output_error.value_or(0) && with.cosine_similarity >= least;
}

}  // namespace

std::unexpected<Error> below_minimum(const LayerCoder& coder, const WeightLayout& layer, double cosine) {
  return coder.fail_tensor(
      layer.name, Errc::kBelowMinimum,
      fmt::format("cosine {:.5f} at {} bits is below min_accuracy {}; nothing was written; {} or remove fail_fast", cosine,
                  layer.bits, coder.config().min_accuracy,
                  coder.config().type == QuantizeType::kInt ? "raise bit_width" : "give another type"));
}

Result<Plan> raise_bits(const Plan& plan, const LayerCoder& coder, unsigned threads) {
  const QuantizeConfig& config = coder.config();
  std::vector<unsigned> bits;
  for (const LayerPlan& layer : plan.layers()) bits.push_back(layer.bits);
  if (config.min_accuracy <= 0) return plan;
  CodedBuffers buffers;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool may_rise = plan[i].type == QuantizeType::kInt;
    const auto is_open = [&] { return bits[i] != 0 && ((may_rise && bits[i] < 8) || config.fail_fast); };
    if (!is_open()) continue;
    const WeightLayout layout = coder.layout(i, plan[i]);
    TRY(coder.read_sample(i, layout, kSampleRows, buffers));
    while (is_open()) {
      const WeightLayout tried = with_bits(layout, bits[i]);
      const Quality guess = TRY(coder.try_sample(i, tried, buffers));
      if (1 - guess.cosine_similarity <= (1 - config.min_accuracy) / 2) break;
      const Quality exact = TRY(coder.measure(i, tried, threads));
      if (exact.cosine_similarity >= config.min_accuracy) break;
      if (config.fail_fast) return below_minimum(coder, tried, exact.cosine_similarity);
      bits[i] = bits[i] < 4 ? 4 : 8;
    }
    release(coder, i);
  }
  return plan.with_bits(bits);
}

// Column scales are estimated for the bits that layers have without a target.
Result<SizeFit> SizeFit::make(const Plan& plan, const LayerCoder& coder, const OutputPlan& output) {
  constexpr std::uint64_t kDoubt = 25;  // estimates are within 1/25, and much closer for large layers
  SizeFit fit;
  fit.target_ = *coder.config().target_model_size;
  fit.most_uniform_ = fit.target_ + fit.target_ / kDoubt;
  const auto sizes = TRY(coder.scheme().make_size_model());
  const bool is_spatial = coder.calibration() != nullptr && coder.calibration()->is_spatial();
  fit.sizes_are_exact_ = sizes->is_exact() && !is_spatial;
  const std::vector<double> weights = error_weights(plan, coder);
  OutputPlan largest = output;  // for headers with the most bits
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!plan[i].is_quantized()) continue;
    WeightLayout layout = coder.layout(i, plan[i]);
    if (may_be_equalized(coder, i)) layout.restore = TRY(best_equalization(coder, i, layout));
    auto choices = TRY(try_bits(coder, output, *sizes, i, plan[i], layout, weights[i]));
    release(coder, i);
    largest.weights[i] = with_bits(layout, choices.back().bits);
    fit.tensors_.push_back(i);
    fit.weights_.push_back(weights[i]);
    fit.of_outputs_ |= coder.calibration() != nullptr && coder.calibration()->covers(i);
    fit.layers_.push_back(std::move(choices));
  }
  fit.fixed_ = TRY(sizes->fixed_bytes(largest));
  return fit;
}

std::unexpected<Error> SizeFit::too_small(std::uint64_t least, bool is_known) const {
  const double megabytes = std::ceil(static_cast<double>(least) / 1e3) / 1e3;
  return fail(Errc::kInvalidArgument, "target_model_size_mb is {}, the smallest possible is {}{:.3f}",
              static_cast<double>(target_) / 1e6, is_known ? "" : "about ", megabytes);
}

Result<Plan> SizeFit::choose(const Plan& plan) {
  const std::uint64_t least = std::accumulate(layers_.begin(), layers_.end(), fixed_,
                                              [](std::uint64_t sum, const auto& choices) { return sum + choices.front().bytes; });
  if (tries_ == 0 && least > most_uniform_) {
    // The estimate of a compressed size may be a little low, and the suggested target must be possible.
    return too_small(sizes_are_exact_ ? least : least + least / 100, sizes_are_exact_);
  }
  ++tries_;
  const std::int64_t target = static_cast<std::int64_t>(target_) - missed_;
  const auto beyond_fixed = [&](std::uint64_t bytes) { return bytes - std::min(bytes, fixed_); };
  chosen_ = allot_bits(layers_, target < 0 ? 0 : beyond_fixed(static_cast<std::uint64_t>(target)), beyond_fixed(most_uniform_));
  if (chosen_.choices.empty()) chosen_ = same_bits(layers_, 0);  // the smallest
  std::vector<unsigned> bits(plan.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) bits[tensors_[i]] = layers_[i][chosen_.choices[i]].bits;
  return plan.with_bits(bits);
}

SizeExpectation SizeFit::expected() const {
  const double weights = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  const auto mean = [&](double error) { return weights == 0 ? 0 : std::sqrt(error / weights); };
  SizeExpectation expected{
      .report = {.expected_bytes = fixed_ + chosen_.bytes, .expected_error = mean(chosen_.error), .error = {}}, .tensors = {}};
  expected.report.of_outputs = of_outputs_;
  for (const unsigned bits : kAllBits) {
    const Allotment same = same_bits(layers_, bits);
    if (fixed_ + same.bytes > target_ + target_ / 1000) break;  // headers are estimated from above
    expected.report.uniform_bits = bits;
    expected.report.uniform_bytes = fixed_ + same.bytes;
    expected.report.uniform_error = mean(same.error);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const double error = std::sqrt(layers_[i][chosen_.choices[i]].error / weights_[i]);
    expected.tensors[tensors_[i]] = {.error = error, .weight = weights_[i]};
  }
  return expected;
}

Result<bool> SizeFit::accept(std::uint64_t made) {
  if (made <= target_) return true;
  if (std::ranges::all_of(chosen_.choices, [](std::size_t choice) { return choice == 0; })) return too_small(made, true);
  const std::uint64_t expected = fixed_ + chosen_.bytes;
  if (chosen_.is_uniform) most_uniform_ = expected - 1;
  // Estimates are off by about the same for every choice. After two misses, leave more room.
  missed_ = static_cast<std::int64_t>(made - expected) + (tries_ < 2 ? 0 : static_cast<std::int64_t>(target_ / 100));
  return false;
}

Result<Plan> equalize_layers(const Plan& plan, const LayerCoder& coder, unsigned threads) {
  std::vector<std::vector<float>> scales(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!may_be_equalized(coder, i)) continue;
    const WeightLayout plain = coder.layout(i, plan[i]);
    auto best = TRY(best_equalization(coder, i, plain));
    if (!best.empty() && TRY(is_better(coder, i, plain, with_restore(plain, best), threads))) scales[i] = std::move(best);
    release(coder, i);
  }
  return plan.with_column_scales(std::move(scales));
}

}  // namespace ballast
