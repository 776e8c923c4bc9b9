#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/forward/linear.h"
#include "calibrate/forward/text_model.h"

namespace ballast {

// The sines and cosines of a rotary embedding at the positions of a window.
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(const Rope& rope, std::uint64_t positions);

  // Turns one head of the token at `position`, in place.
  void turn(float* head, std::uint64_t position) const;

 private:
  std::size_t pairs_ = 0;
  std::vector<float> cosines_;  // [positions, pairs]
  std::vector<float> sines_;
};

// Queries, keys and values of some windows, by token. The queries are replaced by the result of the attention.
struct AttentionInputs {
  float* queries;
  float* keys;
  const float* values;
  std::uint64_t windows;
  std::uint64_t length;       // tokens in a window
  float* received = nullptr;  // if not null: set to the attention that each token receives, the mean of the heads
};

// Causal attention within each window. `window` is TextLayer::window.
void attend(const ParallelProducts& products, const TextModel& text, std::uint64_t window, const AttentionInputs& inputs);

}  // namespace ballast
