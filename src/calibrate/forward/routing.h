#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/forward/text_model.h"

namespace ballast {

// A token that an expert gets, and what its result is multiplied by.
struct RoutedToken {
  std::uint64_t token;
  float weight;
};

// The tokens of each expert, in order. `scores` are the outputs of the router, [tokens, experts]; they are overwritten.
std::vector<std::vector<RoutedToken>> route(std::span<float> scores, const Experts& experts);

}  // namespace ballast
