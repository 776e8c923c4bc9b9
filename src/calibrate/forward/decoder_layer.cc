#include "calibrate/forward/decoder_layer.h"

#include <algorithm>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/kernels.h"
#include "calibrate/forward/routing.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMlpTokens = 512;  // whose intermediate values are in memory at once

// outputs = down(activation(gate(inputs)) · up(inputs)), in pieces.
void run_gated(const ParallelProducts& products, const GatedMlp& mlp, Activation activation, const LinearInputs& inputs,
               float* outputs, LayerBuffers& buffers, const SeeInputs& see) {
  const std::uint64_t tokens = inputs.tokens;
  if (see) see(std::vector{mlp.gate.place.tensor, mlp.up.place.tensor}, inputs);
  std::vector<float>& gate = buffers.gate;
  std::vector<float>& up = buffers.up;
  gate.resize(std::min(tokens, kMlpTokens) * mlp.gate.out);
  up.resize(gate.size());
  for (std::uint64_t first = 0; first < tokens; first += kMlpTokens) {
    const std::uint64_t count = std::min(kMlpTokens, tokens - first);
    products.run(mlp.gate, inputs.values + first * mlp.gate.in, count, gate.data());
    products.run(mlp.up, inputs.values + first * mlp.gate.in, count, up.data());
    parallel_for(count, products.threads, [&](unsigned, std::size_t token) {
      const std::uint64_t at = token * mlp.gate.out;
      const std::span row(gate.data() + at, mlp.gate.out);
      activation == Activation::kSilu ? multiply_silu(row, up.data() + at) : multiply_gelu_tanh(row, up.data() + at);
      return true;
    });
    if (see) {
      see(std::vector{mlp.down.place.tensor},
          {.values = gate.data(), .tokens = count, .columns = mlp.gate.out, .importance = inputs.importance + first});
    }
    products.run(mlp.down, gate.data(), count, outputs + first * mlp.down.out);
  }
}

bool rows_are_finite(const ParallelProducts& products, std::span<const float> values, std::uint64_t columns) {
  std::atomic<bool> finite = true;
  parallel_for(values.size() / columns, products.threads, [&](unsigned, std::size_t row) {
    if (!all_finite(values.subspan(row * columns, columns))) finite = false;
    return finite.load();
  });
  return finite;
}

}  // namespace

std::uint64_t DecoderLayer::bytes(const TextModel& text, std::size_t index) {
  const std::uint64_t attention = 2 * (text.query() + text.key_value()) * text.hidden;
  const std::uint64_t intermediate =
      text.layers[index].has_experts ? text.experts->count * text.experts->intermediate : text.intermediate;
  return (attention + 3 * intermediate * text.hidden) * sizeof(float);
}

std::uint64_t DecoderLayer::bytes_for_token(const TextModel& text) {
  return (4 * text.hidden + text.query() + 2 * text.key_value() + 2 * text.heads) * sizeof(float);
}

std::uint64_t DecoderLayer::bytes_to_run(const TextModel& text) {
  const std::uint64_t intermediate = std::max(text.intermediate, text.experts ? text.experts->intermediate : 0);
  return 2 * kMlpTokens * intermediate * sizeof(float);
}

Result<std::vector<float>> DecoderLayer::load_norm(const std::string& tensor, std::uint64_t size) const {
  std::vector<float> weight = TRY(reader_->vector(tensor, size));
  if (text_->norms_add_one) {
    for (float& each : weight) each += 1.0F;
  }
  return weight;
}

Result<void> DecoderLayer::load_attention(const std::string& prefix) {
  const std::string module = prefix + "self_attn.";
  query_ = TRY(reader_->linear(module + "q_proj", text_->query(), text_->hidden));
  key_ = TRY(reader_->linear(module + "k_proj", text_->key_value(), text_->hidden));
  value_ = TRY(reader_->linear(module + "v_proj", text_->key_value(), text_->hidden));
  output_ = TRY(reader_->linear(module + "o_proj", text_->hidden, text_->query()));
  if (!text_->query_key_norms) return {};
  query_norm_ = TRY(load_norm(module + "q_norm.weight", text_->head_dim));
  key_norm_ = TRY(load_norm(module + "k_norm.weight", text_->head_dim));
  return {};
}

Result<GatedMlp> DecoderLayer::load_expert(std::uint64_t expert) const {
  const Experts& experts = *text_->experts;
  const std::string module = text_->layer_prefix(index_) + experts.module;
  const bool is_stacked = reader_->has(module + ".switch_mlp.gate_proj.weight");
  const auto read = [&](const char* name, const char* old_name, std::uint64_t out, std::uint64_t in) {
    if (is_stacked) {
      return reader_->linear({.tensor = fmt::format("{}.switch_mlp.{}.weight", module, name),
                              .first_row = expert * out,
                              .rows = out,
                              .columns = in,
                              .shape = {experts.count, out, in}});
    }
    return reader_->linear(fmt::format("{}.experts.{}.{}", module, expert, experts.old_names ? old_name : name), out, in);
  };
  GatedMlp mlp{.gate = TRY(read("gate_proj", "w1", experts.intermediate, text_->hidden)),
               .up = TRY(read("up_proj", "w3", experts.intermediate, text_->hidden)),
               .down = TRY(read("down_proj", "w2", text_->hidden, experts.intermediate))};
  std::uint64_t at = expert * 3 * experts.intermediate * text_->hidden;
  for (Linear* const linear : {&mlp.gate, &mlp.up, &mlp.down}) {
    if (changed_experts_) TRY(changed_experts_->read(at, linear->weight));
    at += linear->weight.size();
  }
  return mlp;
}

Result<void> DecoderLayer::change_experts(const std::function<Result<void>(Linear&)>& change) {
  const std::uint64_t count = text_->experts->count;
  HiddenStates changed = TRY(HiddenStates::make(count * 3 * text_->experts->intermediate * text_->hidden, 1, 0));
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    GatedMlp mlp = TRY(load_expert(i));
    for (Linear* const linear : {&mlp.gate, &mlp.up, &mlp.down}) {
      TRY(change(*linear));
      TRY(changed.write(at, linear->weight));
      at += linear->weight.size();
    }
  }
  changed_experts_.emplace(std::move(changed));
  return {};
}

Result<void> DecoderLayer::change_linears(const std::function<Result<void>(Linear&)>& change) {
  std::vector<Linear*> linears{&query_, &key_, &value_, &output_, &mlp_.gate, &mlp_.up, &mlp_.down, &router_};
  for (GatedMlp& expert : experts_) linears.insert(linears.end(), {&expert.gate, &expert.up, &expert.down});
  for (Linear* const linear : linears) {
    if (!linear->weight.empty()) TRY(change(*linear));
  }
  return text_->layers[index_].has_experts && experts_.empty() ? change_experts(change) : Result<void>();
}

Result<void> DecoderLayer::load_experts(const std::string& prefix, bool keeps_experts) {
  router_ = TRY(reader_->linear(prefix + text_->experts->module + ".gate", text_->experts->count, text_->hidden));
  if (!keeps_experts) return {};
  for (std::uint64_t i = 0; i < text_->experts->count; ++i) experts_.push_back(TRY(load_expert(i)));
  return {};
}

Result<DecoderLayer> DecoderLayer::load(const TextModel& text, std::size_t index, const LinearReader& reader,
                                        bool keeps_experts) {
  DecoderLayer layer(text, index, reader);
  const std::string prefix = text.layer_prefix(index);
  layer.attention_norm_ = TRY(layer.load_norm(prefix + "input_layernorm.weight", text.hidden));
  if (text.norms_after) {
    layer.attention_after_norm_ = TRY(layer.load_norm(prefix + "post_attention_layernorm.weight", text.hidden));
    layer.mlp_norm_ = TRY(layer.load_norm(prefix + "pre_feedforward_layernorm.weight", text.hidden));
    layer.mlp_after_norm_ = TRY(layer.load_norm(prefix + "post_feedforward_layernorm.weight", text.hidden));
  } else {
    layer.mlp_norm_ = TRY(layer.load_norm(prefix + "post_attention_layernorm.weight", text.hidden));
  }
  TRY(layer.load_attention(prefix));
  if (text.layers[index].has_experts) {
    TRY(layer.load_experts(prefix, keeps_experts));
    return layer;
  }
  layer.mlp_ = {.gate = TRY(reader.linear(prefix + "mlp.gate_proj", text.intermediate, text.hidden)),
                .up = TRY(reader.linear(prefix + "mlp.up_proj", text.intermediate, text.hidden)),
                .down = TRY(reader.linear(prefix + "mlp.down_proj", text.hidden, text.intermediate))};
  return layer;
}

void DecoderLayer::normalize(const ParallelProducts& products, const float* in, std::uint64_t rows,
                             const std::vector<float>& norm, float* out) const {
  const std::uint64_t columns = norm.size();
  parallel_for(rows, products.threads, [&](unsigned, std::size_t row) {
    rms_norm({in + row * columns, columns}, norm.data(), text_->epsilon, out + row * columns);
    return true;
  });
}

void DecoderLayer::add(const ParallelProducts& products, std::span<float> outputs, const std::vector<float>& norm,
                       std::span<float> hidden) const {
  parallel_for(hidden.size() / text_->hidden, products.threads, [&](unsigned, std::size_t row) {
    const auto own = outputs.subspan(row * text_->hidden, text_->hidden);
    if (!norm.empty()) rms_norm(own, norm.data(), text_->epsilon, own.data());
    add_scaled(hidden.subspan(row * text_->hidden, text_->hidden), own.data(), 1.0F);
    return true;
  });
}

Result<void> DecoderLayer::run_attention(const ParallelProducts& products, const RopeTable& rope, std::span<float> hidden,
                                         std::uint64_t length, LayerBuffers& buffers, const SeeInputs& see) const {
  const std::uint64_t tokens = hidden.size() / text_->hidden;
  std::vector<float>& inputs = buffers.inputs;
  std::vector<float>& queries = buffers.queries;
  std::vector<float>& keys = buffers.keys;
  std::vector<float>& values = buffers.values;
  inputs.resize(hidden.size());
  queries.resize(tokens * text_->query());
  keys.resize(tokens * text_->key_value());
  values.resize(keys.size());
  normalize(products, hidden.data(), tokens, attention_norm_, inputs.data());
  products.run(query_, inputs.data(), tokens, queries.data());
  products.run(key_, inputs.data(), tokens, keys.data());
  products.run(value_, inputs.data(), tokens, values.data());
  if (text_->query_key_norms) {
    normalize(products, queries.data(), tokens * text_->heads, query_norm_, queries.data());
    normalize(products, keys.data(), tokens * text_->kv_heads, key_norm_, keys.data());
  }
  if (!rows_are_finite(products, queries, text_->query()) || !rows_are_finite(products, keys, text_->key_value())) {
    return fail(Errc::kCorrupt, "layer {}: queries or keys are NaN or infinite", index_);
  }
  parallel_for(tokens, products.threads, [&](unsigned, std::size_t token) {
    const auto turn = [&](std::vector<float>& all, std::uint64_t heads) {
      for (std::uint64_t i = 0; i < heads; ++i) rope.turn(all.data() + (token * heads + i) * text_->head_dim, token % length);
    };
    turn(queries, text_->heads);
    turn(keys, text_->kv_heads);
    return true;
  });
  buffers.importance.resize(tokens);
  float* const importance = buffers.importance.data();
  attend(products, *text_, text_->layers[index_].window,
         {.queries = queries.data(),
          .keys = keys.data(),
          .values = values.data(),
          .windows = tokens / length,
          .length = length,
          .received = see ? importance : nullptr});
  if (see) {
    for (float& each : buffers.importance) each = (1 + each) / 2;
    see(std::vector{query_.place.tensor, key_.place.tensor, value_.place.tensor},
        {.values = inputs.data(), .tokens = tokens, .columns = text_->hidden, .importance = importance});
    see(std::vector{output_.place.tensor},
        {.values = queries.data(), .tokens = tokens, .columns = text_->query(), .importance = importance});
  }
  products.run(output_, queries.data(), tokens, inputs.data());
  add(products, inputs, attention_after_norm_, hidden);
  return {};
}

Result<void> DecoderLayer::run_experts(const ParallelProducts& products, LayerBuffers& buffers, const SeeInputs& see) const {
  const Experts& experts = *text_->experts;
  const std::span<const float> inputs = buffers.inputs;
  const std::span outputs(buffers.outputs);
  const std::uint64_t tokens = inputs.size() / text_->hidden;
  if (see) {
    see(std::vector{router_.place.tensor},
        {.values = inputs.data(), .tokens = tokens, .columns = text_->hidden, .importance = buffers.importance.data()});
  }
  std::vector<float> scores(tokens * experts.count);
  products.run(router_, inputs.data(), tokens, scores.data());
  const auto routed = route(scores, experts);
  std::vector<float> own;
  std::vector<float> importance;
  std::vector<float> results;
  for (std::uint64_t i = 0; i < experts.count; ++i) {
    if (routed[i].empty()) continue;
    own.resize(routed[i].size() * text_->hidden);
    results.resize(own.size());
    importance.clear();
    for (std::size_t at = 0; at < routed[i].size(); ++at) {
      std::ranges::copy(inputs.subspan(routed[i][at].token * text_->hidden, text_->hidden),
                        own.begin() + static_cast<std::ptrdiff_t>(at * text_->hidden));
      importance.push_back(buffers.importance[routed[i][at].token]);
    }
    const LinearInputs routed_inputs{
        .values = own.data(), .tokens = routed[i].size(), .columns = text_->hidden, .importance = importance.data()};
    if (experts_.empty()) {
      run_gated(products, TRY(load_expert(i)), text_->activation, routed_inputs, results.data(), buffers, see);
    } else {
      run_gated(products, experts_[i], text_->activation, routed_inputs, results.data(), buffers, see);
    }
    for (std::size_t at = 0; at < routed[i].size(); ++at) {
      add_scaled(outputs.subspan(routed[i][at].token * text_->hidden, text_->hidden), results.data() + at * text_->hidden,
                 routed[i][at].weight);
    }
  }
  return {};
}

Result<void> DecoderLayer::run_mlp(const ParallelProducts& products, std::span<float> hidden, LayerBuffers& buffers,
                                   const SeeInputs& see) const {
  buffers.inputs.resize(hidden.size());
  buffers.outputs.resize(hidden.size());
  normalize(products, hidden.data(), hidden.size() / text_->hidden, mlp_norm_, buffers.inputs.data());
  if (text_->layers[index_].has_experts) {
    std::ranges::fill(buffers.outputs, 0.0F);
    TRY(run_experts(products, buffers, see));
  } else {
    const LinearInputs inputs{.values = buffers.inputs.data(),
                              .tokens = hidden.size() / text_->hidden,
                              .columns = text_->hidden,
                              .importance = buffers.importance.data()};
    run_gated(products, mlp_, text_->activation, inputs, buffers.outputs.data(), buffers, see);
  }
  add(products, buffers.outputs, mlp_after_norm_, hidden);
  return {};
}

Result<void> DecoderLayer::run(const ParallelProducts& products, const RopeTable& rope, std::span<float> hidden,
                               std::uint64_t length, LayerBuffers& buffers, const SeeInputs& see) const {
  TRY(run_attention(products, rope, hidden, length, buffers, see));
  TRY(run_mlp(products, hidden, buffers, see));
  if (rows_are_finite(products, hidden, text_->hidden)) return {};
  return fail(Errc::kCorrupt, "layer {}: hidden states are NaN or infinite", index_);
}

}  // namespace ballast
