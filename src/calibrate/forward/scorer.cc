#include "calibrate/forward/scorer.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::uint64_t kTokens = 256;  // at once

// Logits of some tokens for a part of the vocabulary.
class PartialHead {
 public:
  explicit PartialHead(const ForwardPass& pass) : pass_(pass) {}

  Result<void> load(std::uint64_t first, std::uint64_t count) {
    const TextModel& text = pass_.text();
    head_ = TRY(pass_.reader().linear(
        {.tensor = text.head, .first_row = first, .rows = count, .columns = text.hidden, .shape = {text.vocab, text.hidden}}));
    return {};
  }

  Result<void> run(std::uint64_t token, std::uint64_t tokens) {
    hidden_.resize(tokens * head_.in);
    logits_.resize(tokens * head_.out);
    TRY(pass_.hidden().read(token, hidden_));
    pass_.products().run(head_, hidden_.data(), tokens, logits_.data());
    return {};
  }

  std::span<const float> logits(std::uint64_t token) const { return {logits_.data() + token * head_.out, head_.out}; }

 private:
  const ForwardPass& pass_;
  Linear head_;
  std::vector<float> hidden_;
  std::vector<float> logits_;
};

}  // namespace

Result<ComparedScores> score(const ForwardPass& pass, const ForwardPass* original, std::uint64_t memory,
                             const ForwardPass::Tick& tick) {
  const TokenWindows& tokens = pass.tokens();
  const std::uint64_t vocab = pass.text().vocab;
  const std::uint64_t models = original == nullptr ? 1 : 2;
  const std::uint64_t row_bytes = (pass.text().hidden + kTokens) * sizeof(float) * models;
  const std::uint64_t part = std::clamp<std::uint64_t>(memory / row_bytes, 1, std::min<std::uint64_t>(vocab, 1 << 14));
  const std::uint64_t scored = tokens.length - 1;
  ComparedScores scores;
  scores.model.resize(tokens.count() * scored);
  if (original != nullptr) scores.original.resize(scores.model.size());
  PartialHead head(pass);
  PartialHead other(original == nullptr ? pass : *original);
  for (std::uint64_t first = 0; first < vocab; first += part) {
    const std::uint64_t count = std::min(part, vocab - first);
    TRY(head.load(first, count));
    if (original != nullptr) TRY(other.load(first, count));
    for (std::uint64_t window = 0; window < tokens.count(); ++window) {
      for (std::uint64_t from = 0; from < scored; from += kTokens) {
        const std::uint64_t rows = std::min(kTokens, scored - from);
        const std::uint64_t token = window * tokens.length + from;
        TRY(head.run(token, rows));
        if (original != nullptr) TRY(other.run(token, rows));
        parallel_for(rows, pass.products().threads, [&](unsigned, std::size_t row) {
          const std::uint32_t target = tokens.ids[token + row + 1];
          const auto add = [&](TokenScore& score, std::span<const float> logits, const float* others) {
            const auto index = static_cast<std::uint32_t>(first);
            others == nullptr ? add_logits(logits, index, score.sums) : add_logits(logits, others, index, score.sums);
            if (target >= first && target - first < count) score.target = logits[target - first];
          };
          const std::uint64_t at = window * scored + from + row;
          add(scores.model[at], head.logits(row), nullptr);
          if (original != nullptr) add(scores.original[at], other.logits(row), head.logits(row).data());
          return true;
        });
      }
      const double done =
          static_cast<double>(first) + static_cast<double>(count * (window + 1)) / static_cast<double>(tokens.count());
      if (tick && !tick(done / static_cast<double>(vocab))) return fail(Errc::kCancelled, "cancelled");
    }
  }
  return scores;
}

double divergence(const TokenScore& original, const TokenScore& model) {
  const double gap = original.sums.gaps / original.sums.exponentials;
  return std::max(0.0, gap - original.sums.log_sum() + model.sums.log_sum());
}

}  // namespace ballast
