#include "calibrate/forward/attention.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/checked.h"
#include "base/parallel.h"
#include "calibrate/forward/kernels.h"

namespace ballast {
namespace {

constexpr std::uint64_t kQueries = 256;  // at once, so that their scores stay in the cache

// One head of one window. Rows are `query_stride` and `key_stride` apart.
struct Head {
  float* queries;
  const float* keys;
  const float* values;
  std::uint64_t query_stride;
  std::uint64_t key_stride;
  float* received;  // by token, or null
};

void attend_head(const Blas& blas, const TextModel& text, std::uint64_t window, std::uint64_t length, const Head& head,
                 std::vector<float>& scores) {
  for (std::uint64_t first = 0; first < length; first += kQueries) {
    const std::uint64_t end = std::min(first + kQueries, length);
    const std::uint64_t first_key = window == 0 || first + 1 < window ? 0 : first + 1 - window;
    const std::uint64_t keys = end - first_key;
    scores.resize((end - first) * keys);
    float* const queries = head.queries + first * head.query_stride;
    blas.multiply_transposed(end - first, keys, text.head_dim, {.values = queries, .stride = head.query_stride},
                             {.values = head.keys + first_key * head.key_stride, .stride = head.key_stride}, text.attention_scale,
                             scores.data(), keys);
    for (std::uint64_t token = first; token < end; ++token) {
      const std::span row(scores.data() + (token - first) * keys, keys);
      const std::uint64_t begin = window == 0 || token + 1 < window + first_key ? 0 : token + 1 - window - first_key;
      std::ranges::fill(row.first(begin), 0.0F);
      softmax(row.subspan(begin, token + 1 - first_key - begin));
      std::ranges::fill(row.subspan(token + 1 - first_key), 0.0F);
      if (head.received != nullptr) add_scaled({head.received + first_key, keys}, row.data(), 1.0F);
    }
    blas.multiply(end - first, text.head_dim, keys, {.values = scores.data(), .stride = keys},
                  {.values = head.values + first_key * head.key_stride, .stride = head.key_stride}, queries, head.query_stride);
  }
}

}  // namespace

RopeTable::RopeTable(const Rope& rope, std::uint64_t positions) : pairs_(rope.frequencies.size()) {
  for (std::uint64_t position = 0; position < positions; ++position) {
    for (const float frequency : rope.frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cosines_.push_back(std::cos(angle));
      sines_.push_back(std::sin(angle));
    }
  }
}

void RopeTable::turn(float* head, std::uint64_t position) const {
  const float* const cosines = cosines_.data() + position * pairs_;
  const float* const sines = sines_.data() + position * pairs_;
  for (std::size_t j = 0; j < pairs_; ++j) {
    const float first = head[j];
    const float second = head[j + pairs_];
    head[j] = first * cosines[j] - second * sines[j];
    head[j + pairs_] = second * cosines[j] + first * sines[j];
  }
}

void attend(const ParallelProducts& products, const TextModel& text, std::uint64_t window, const AttentionInputs& inputs) {
  const std::uint64_t shared = text.heads / text.kv_heads;
  std::vector<std::vector<float>> scores(thread_count(products.threads));
  std::vector<float> received(inputs.received == nullptr ? 0 : inputs.windows * text.heads * inputs.length);
  parallel_for(inputs.windows * text.heads, products.threads, [&](unsigned worker, std::size_t i) {
    const std::uint64_t first = i / text.heads * inputs.length;
    const std::uint64_t head = i % text.heads;
    const std::uint64_t key_at = first * text.key_value() + head / shared * text.head_dim;
    attend_head(products.blas, text, window, inputs.length,
                {.queries = inputs.queries + first * text.query() + head * text.head_dim,
                 .keys = inputs.keys + key_at,
                 .values = inputs.values + key_at,
                 .query_stride = text.query(),
                 .key_stride = text.key_value(),
                 .received = received.empty() ? nullptr : received.data() + i * inputs.length},
                scores[worker]);
    return true;
  });
  if (received.empty()) return;
  std::fill_n(inputs.received, inputs.windows * inputs.length, 0.0F);
  for (std::uint64_t i = 0; i < inputs.windows * text.heads; ++i) {
    add_scaled({inputs.received + i / text.heads * inputs.length, inputs.length}, received.data() + i * inputs.length,
               1.0F / static_cast<float>(text.heads));
  }
}

}  // namespace ballast
