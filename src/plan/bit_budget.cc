#include "plan/bit_budget.h"

#include <optional>
#include <queue>

namespace ballast {
namespace {

// The step from one choice of a layer to a larger one.
struct Step {
  double gain;  // error per byte
  std::size_t layer;
  std::size_t from;
  std::size_t to;

  bool operator<(const Step& other) const { return gain != other.gain ? gain < other.gain : layer > other.layer; }
};

// The larger choice that saves the most error per byte.
std::optional<Step> best_step(const std::vector<BitChoice>& choices, std::size_t layer, std::size_t from, std::uint64_t room) {
  std::optional<Step> best;
  for (std::size_t to = from + 1; to < choices.size(); ++to) {
    const std::uint64_t bytes = choices[to].bytes - choices[from].bytes;
    const double less = choices[from].error - choices[to].error;
    if (bytes > room || less <= 0) continue;
    const Step step{.gain = less / static_cast<double>(bytes), .layer = layer, .from = from, .to = to};
    if (!best || best->gain < step.gain) best = step;
  }
  return best;
}

Allotment of(std::span<const std::vector<BitChoice>> layers, std::vector<std::size_t> choices) {
  Allotment made{.choices = std::move(choices)};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    made.bytes += layers[i][made.choices[i]].bytes;
    made.error += layers[i][made.choices[i]].error;
  }
  return made;
}

// Greedily spends the rest of the budget.
Allotment improve(std::span<const std::vector<BitChoice>> layers, Allotment from, std::uint64_t budget) {
  std::priority_queue<Step> steps;
  const auto offer = [&](std::size_t layer) {
    if (const auto step = best_step(layers[layer], layer, from.choices[layer], budget - from.bytes)) steps.push(*step);
  };
  for (std::size_t i = 0; i < layers.size(); ++i) offer(i);
  while (!steps.empty()) {
    const Step step = steps.top();
    steps.pop();
    const std::vector<BitChoice>& choices = layers[step.layer];
    const std::uint64_t bytes = choices[step.to].bytes - choices[step.from].bytes;
    if (bytes <= budget - from.bytes) {
      from.bytes += bytes;
      from.error -= choices[step.from].error - choices[step.to].error;
      from.choices[step.layer] = step.to;
      from.is_uniform = false;
    }
    offer(step.layer);
  }
  return from;
}

}  // namespace

Allotment same_bits(std::span<const std::vector<BitChoice>> layers, unsigned bits) {
  std::vector<std::size_t> choices;
  for (const std::vector<BitChoice>& layer : layers) {
    std::size_t choice = 0;
    while (choice + 1 < layer.size() && layer[choice + 1].bits <= bits) ++choice;
    choices.push_back(choice);
  }
  Allotment same = of(layers, std::move(choices));
  same.is_uniform = true;
  return same;
}

Allotment allot_bits(std::span<const std::vector<BitChoice>> layers, std::uint64_t budget, std::uint64_t uniform_budget) {
  constexpr unsigned kMostBits = 8;
  std::optional<Allotment> best;
  const auto offer = [&](Allotment allotment) {
    if (!best || allotment.error < best->error) best = std::move(allotment);
  };
  // Starts from every uniform pick that fits and from the smallest one. Greedy steps can leave a rest that no step fits, so the
  // uniform picks compete as they are, too.
  for (unsigned bits = 0; bits <= kMostBits; ++bits) {
    Allotment same = same_bits(layers, bits);
    if (same.bytes <= budget) offer(improve(layers, same, budget));
    if (same.bytes <= uniform_budget) offer(std::move(same));
  }
  return std::move(best).value_or(Allotment());
}

}  // namespace ballast
