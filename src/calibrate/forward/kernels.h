#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ballast {

// The functions of a decoder layer that are not matrix products, with the best instruction set of the machine.

// out = in / √(mean(in²) + epsilon) · weight
void rms_norm(std::span<const float> in, const float* weight, float epsilon, float* out);

// Turns `row` into exp(row) / Σ exp(row).
void softmax(std::span<float> row);

// gate = silu(gate) · up
void multiply_silu(std::span<float> gate, const float* up);
// gate = gelu(gate) · up, by the approximation with tanh
void multiply_gelu_tanh(std::span<float> gate, const float* up);

// sums += values · factor
void add_scaled(std::span<float> sums, const float* values, float factor);

bool all_finite(std::span<const float> values);

// What is known of the distribution that some of the logits of one token describe.
struct LogitSums {
  float most = 0;           // the largest logit
  std::uint32_t first = 0;  // its index; the lowest of equal ones
  double exponentials = 0;  // Σ exp(logit − most)
  double gaps = 0;          // Σ exp(logit − most) · (logit − other logit)

  double log_sum() const;  // log Σ exp(logit)
};

// Adds logits of the tokens from `index` on. `sums` starts with index 0.
void add_logits(std::span<const float> logits, std::uint32_t index, LogitSums& sums);
// The same, with the gaps to the logits of another model.
void add_logits(std::span<const float> logits, const float* others, std::uint32_t index, LogitSums& sums);

}  // namespace ballast
