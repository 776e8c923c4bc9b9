#include "calibrate/forward/forward_pass.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/kernels.h"

namespace ballast {
namespace {

constexpr std::uint64_t kDenseTokens = 2048;  // that go through a layer without experts at once

Result<void> check_tokens(const TextModel& text, const TokenWindows& tokens) {
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] < text.vocab) continue;
    return fail(Errc::kCorrupt, "{}: token {} is {}, but the model has a vocabulary of {}: it was tokenized for another model",
                escape(tokens.path), i, tokens.ids[i], text.vocab);
  }
  return {};
}

}  // namespace

Result<ForwardPass> ForwardPass::make(const Model& model, const TokenWindows& tokens, const Blas& blas, const PassMemory& memory,
                                      unsigned threads) {
  TextModel text = TRY(TextModel::make(model));
  TRY(check_tokens(text, tokens));
  HiddenStates hidden = TRY(HiddenStates::make(tokens.ids.size(), text.hidden, memory.hidden));
  return ForwardPass(std::move(text), model, tokens, {.blas = blas, .threads = threads}, std::move(hidden), memory);
}

ForwardPass::ForwardPass(TextModel text, const Model& model, const TokenWindows& tokens, const ParallelProducts& products,
                         HiddenStates hidden, const PassMemory& memory)
    : text_(std::move(text)),
      reader_(model, products.threads),
      tokens_(tokens),
      products_(products),
      hidden_(std::move(hidden)),
      memory_(memory),
      rope_(text_.rope, tokens.length),
      local_rope_(text_.local_rope, tokens.length) {}

std::uint64_t ForwardPass::windows_at_once(std::size_t layer) const {
  const std::uint64_t room = memory_.activations - std::min(memory_.activations, DecoderLayer::bytes_to_run(text_));
  const std::uint64_t window = DecoderLayer::bytes_for_token(text_) * tokens_.length;
  // Activations of few tokens stay in the cache. But each expert gets only some of the tokens.
  const std::uint64_t most = text_.layers[layer].has_experts ? tokens_.count() : kDenseTokens / tokens_.length;
  return std::clamp<std::uint64_t>(std::min(room / window, most), 1, tokens_.count());
}

// Rows of the embedding are read once each, in order.
Result<void> ForwardPass::embed() {
  std::map<std::uint32_t, std::vector<std::uint64_t>> places;
  for (std::size_t i = 0; i < tokens_.ids.size(); ++i) places[tokens_.ids[i]].push_back(i);
  constexpr std::uint32_t kRows = 1024;
  std::vector<float> rows;
  for (auto at = places.begin(); at != places.end();) {
    const std::uint32_t first = at->first;
    auto end = at;
    std::uint32_t last = first;
    while (end != places.end() && end->first < first + kRows && end->first - last < 64) last = (end++)->first;
    rows.resize((last + 1 - first) * text_.hidden);
    TRY(reader_.read({.tensor = text_.prefix + "embed_tokens.weight",
                      .first_row = first,
                      .rows = last + 1 - first,
                      .columns = text_.hidden,
                      .shape = {text_.vocab, text_.hidden}},
                     rows));
    for (float& value : rows) value *= text_.embedding_scale;
    for (; at != end; ++at) {
      const std::span row(rows.data() + (at->first - first) * text_.hidden, text_.hidden);
      for (const std::uint64_t token : at->second) TRY(hidden_.write(token, row));
    }
  }
  return {};
}

Result<DecoderLayer> ForwardPass::load_layer(std::size_t layer) const {
  const bool keeps_experts = DecoderLayer::bytes(text_, layer) <= memory_.layer;
  return DecoderLayer::load(text_, layer, reader_, keeps_experts);
}

Result<void> ForwardPass::run(const DecoderLayer& layer, std::size_t index, const SeeInputs& see, bool keep, const Tick& tick) {
  const RopeTable& rope = text_.layers[index].local_rope ? local_rope_ : rope_;
  const std::uint64_t at_once = windows_at_once(index);
  std::vector<float> states;
  LayerBuffers buffers;
  for (std::uint64_t first = 0; first < tokens_.count(); first += at_once) {
    const std::uint64_t windows = std::min(at_once, tokens_.count() - first);
    states.resize(windows * tokens_.length * text_.hidden);
    TRY(hidden_.read(first * tokens_.length, states));
    if (auto done = layer.run(products_, rope, states, tokens_.length, buffers, see); !done) {
      return fail_at(escape(reader_.model().path()), done.error());
    }
    if (keep) TRY(hidden_.write(first * tokens_.length, states));
    if (tick && !tick(static_cast<double>(first + windows) / static_cast<double>(tokens_.count()))) {
      return fail(Errc::kCancelled, "cancelled");
    }
  }
  return {};
}

Result<void> ForwardPass::finish() {
  std::vector<float> norm = TRY(reader_.vector(text_.prefix + "norm.weight", text_.hidden));
  if (text_.norms_add_one) {
    for (float& each : norm) each += 1.0F;
  }
  std::vector<float> rows(tokens_.length * text_.hidden);
  for (std::uint64_t token = 0; token < tokens_.ids.size(); token += tokens_.length) {
    TRY(hidden_.read(token, rows));
    parallel_for(tokens_.length, products_.threads, [&](unsigned, std::size_t row) {
      float* const values = rows.data() + row * text_.hidden;
      rms_norm({values, text_.hidden}, norm.data(), text_.epsilon, values);
      return true;
    });
    TRY(hidden_.write(token, rows));
  }
  return {};
}

Result<void> ForwardPass::run_all() {
  TRY(embed());
  for (std::size_t i = 0; i < layer_count(); ++i) TRY(run(TRY(load_layer(i)), i, {}, true, {}));
  return finish();
}

}  // namespace ballast
