#include <ballast/evaluate.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/forward_pass.h"
#include "calibrate/forward/scorer.h"

namespace ballast {
namespace {

constexpr std::uint64_t kEvaluationMemory = std::uint64_t{1} << 30;

// The work in units of multiplications by a weight of the model.
class Meter {
 public:
  Meter(const WorkOptions& work, const TextModel& text, std::uint64_t models) : work_(work), models_(models) {
    for (std::size_t i = 0; i < text.layers.size(); ++i) layers_.push_back(DecoderLayer::bytes(text, i));
    head_ = text.vocab * text.hidden * sizeof(float);
    total_ = models * head_;
    for (const std::uint64_t layer : layers_) total_ += models * layer;
  }

  ForwardPass::Tick layer(std::size_t index) { return step(layers_[index], fmt::format("layer {}", index)); }
  ForwardPass::Tick head() { return step(models_ * head_, "predictions"); }

 private:
  ForwardPass::Tick step(std::uint64_t size, std::string what) {
    const std::uint64_t before = done_;
    done_ += size;
    return [this, before, size, what = std::move(what)](double share) {
      return report(work_, before + static_cast<std::uint64_t>(share * static_cast<double>(size)), total_, what);
    };
  }

  const WorkOptions& work_;
  std::uint64_t models_;
  std::vector<std::uint64_t> layers_;
  std::uint64_t head_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
};

Result<void> check_comparable(const ForwardPass& pass, const ForwardPass& original) {
  struct Size {
    std::string_view name;
    std::uint64_t model;
    std::uint64_t original;
  };
  const TextModel& a = pass.text();
  const TextModel& b = original.text();
  for (const auto& [name, found, expected] : {Size{"vocab_size", a.vocab, b.vocab}, Size{"hidden_size", a.hidden, b.hidden},
                                              Size{"num_hidden_layers", a.layers.size(), b.layers.size()}}) {
    if (found == expected) continue;
    return fail(Errc::kInvalidArgument, "{} has {} {}, {} has {}: only a model and its original can be compared",
                escape(pass.reader().model().path()), name, found, escape(original.reader().model().path()), expected);
  }
  return {};
}

// The relative RMS difference of the hidden states of two models.
Result<double> compare_hidden(const ForwardPass& pass, const ForwardPass& original) {
  const std::uint64_t length = pass.tokens().length;
  std::vector<float> states(length * pass.text().hidden);
  std::vector<float> expected(states.size());
  double errors = 0;
  double squares = 0;
  for (std::uint64_t token = 0; token < pass.tokens().ids.size(); token += length) {
    TRY(pass.hidden().read(token, states));
    TRY(original.hidden().read(token, expected));
    for (std::size_t i = 0; i < states.size(); ++i) {
      const double gap = static_cast<double>(states[i]) - static_cast<double>(expected[i]);
      errors += gap * gap;
      squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
  }
  return squares == 0 ? 0 : std::sqrt(errors / squares);
}

struct Mean {
  double value = 0;
  double error = 0;  // its standard error
};

Mean mean_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  Mean mean{.value = sum / count};
  if (values.size() < 2) return mean;
  double squares = 0;
  for (const double value : values) squares += (value - mean.value) * (value - mean.value);
  mean.error = std::sqrt(squares / (count - 1) / count);
  return mean;
}

std::vector<double> losses_of(std::span<const TokenScore> scores) {
  std::vector<double> losses;
  losses.reserve(scores.size());
  for (const TokenScore& score : scores) losses.push_back(score.loss());
  return losses;
}

double percentile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

EvaluationAgainst compare(const ComparedScores& scores, std::vector<double> layer_errors, double loss) {
  EvaluationAgainst against{.layer_errors = std::move(layer_errors)};
  const double original_loss = mean_of(losses_of(scores.original)).value;
  against.perplexity = std::exp(original_loss);
  against.perplexity_ratio = std::exp(loss - original_loss);
  std::uint64_t agreed = 0;
  for (std::size_t i = 0; i < scores.model.size(); ++i) {
    against.kl.push_back(divergence(scores.original[i], scores.model[i]));
    if (scores.original[i].sums.first == scores.model[i].sums.first) ++agreed;
  }
  const Mean mean = mean_of(against.kl);
  against.kl_mean = mean.value;
  against.kl_stderr = mean.error;
  against.kl_p99 = percentile(against.kl, 0.99);
  against.top1_agreement = static_cast<double>(agreed) / static_cast<double>(scores.model.size());
  against.worst_layer = static_cast<std::uint64_t>(std::ranges::max_element(against.layer_errors) - against.layer_errors.begin());
  return against;
}

}  // namespace

Result<Evaluation> evaluate_model(const Model& model, const TokenWindows& tokens, const Model* original,
                                  const WorkOptions& work) {
  const Blas& blas = *TRY(Blas::load());
  const Blas::OneThread one_thread(blas);
  const std::uint64_t limit = work.memory_limit != 0 ? work.memory_limit : kEvaluationMemory;
  const std::uint64_t models = original == nullptr ? 1 : 2;
  const PassMemory memory{.hidden = limit / 4 / models, .layer = limit / 2, .activations = limit / 4};
  ForwardPass pass = TRY(ForwardPass::make(model, tokens, blas, memory, work.threads));
  std::optional<ForwardPass> other;
  if (original != nullptr) {
    other.emplace(TRY(ForwardPass::make(*original, tokens, blas, memory, work.threads)));
    TRY(check_comparable(pass, *other));
  }
  Meter meter(work, pass.text(), models);
  TRY(pass.embed());
  if (other) TRY(other->embed());
  std::vector<double> layer_errors;
  for (std::size_t i = 0; i < pass.layer_count(); ++i) {
    TRY(pass.run(TRY(pass.load_layer(i)), i, {}, true, meter.layer(i)));
    if (!other) continue;
    TRY(other->run(TRY(other->load_layer(i)), i, {}, true, meter.layer(i)));
    layer_errors.push_back(TRY(compare_hidden(pass, *other)));
  }
  TRY(pass.finish());
  if (other) TRY(other->finish());
  const ComparedScores scores = TRY(score(pass, other ? &*other : nullptr, limit / 4, meter.head()));
  const Mean loss = mean_of(losses_of(scores.model));
  Evaluation evaluation{.perplexity = std::exp(loss.value),
                        .perplexity_stderr = std::exp(loss.value) * loss.error,
                        .loss = loss.value,
                        .tokens = scores.model.size(),
                        .windows = tokens.count(),
                        .length = tokens.length};
  if (other) evaluation.against = compare(scores, std::move(layer_errors), loss.value);
  return evaluation;
}

}  // namespace ballast
