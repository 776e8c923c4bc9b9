#include "plan/mixed_bits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/fail.h"

namespace ballast {
namespace {

struct BitPair {
  unsigned low;
  unsigned high;
};

constexpr BitPair bits_of(Recipe recipe) {
  switch (recipe) {
    case Recipe::kUniform: break;
    case Recipe::kMixed2And6: return {.low = 2, .high = 6};
    case Recipe::kMixed3And4: return {.low = 3, .high = 4};
    case Recipe::kMixed3And6: return {.low = 3, .high = 6};
    case Recipe::kMixed4And6: return {.low = 4, .high = 6};
  }
  return {};
}

// The stack of layers that a tensor belongs to, and which of them: "model.layers." and 3 for model.layers.3.mlp.experts.7.w1.
struct Place {
  std::string_view stack;
  std::uint32_t layer;
};

std::optional<Place> place_of(std::string_view tensor) {
  for (std::size_t begin = 0; begin < tensor.size();) {
    const std::size_t end = std::min(tensor.find('.', begin), tensor.size());
    std::uint32_t layer = 0;
    const auto [stop, error] = std::from_chars(tensor.data() + begin, tensor.data() + end, layer);
    if (error == std::errc() && stop == tensor.data() + end) return Place{.stack = tensor.substr(0, begin), .layer = layer};
    begin = end + 1;
  }
  return std::nullopt;
}

bool is_delicate(std::string_view tensor) {
  constexpr std::array<std::string_view, 4> kParts{"v_proj", "v_a_proj", "v_b_proj", "down_proj"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return tensor.contains(part); });
}

}  // namespace

MixedBits::MixedBits(Recipe recipe) : low_(bits_of(recipe).low), high_(bits_of(recipe).high) {}

Result<MixedBits> MixedBits::make(const Model& model, Recipe recipe) {
  MixedBits mixed(recipe);
  bool has_down_proj = false;
  for (const TensorInfo& tensor : model.tensors()) {
    has_down_proj = has_down_proj || tensor.name.contains("down_proj");
    const auto place = place_of(tensor.name);
    if (!place) continue;
    std::uint64_t& layers = mixed.layers_[place->stack];
    layers = std::max(layers, std::uint64_t{place->layer} + 1);
  }
  if (!has_down_proj) {
    return fail(Errc::kUnsupported, "recipe {} needs layers named down_proj, and the model has none; use bit_width instead",
                name(recipe));
  }
  return mixed;
}

unsigned MixedBits::bits(std::string_view tensor) const {
  if (tensor.contains("lm_head")) return high_;
  const auto place = place_of(tensor);
  if (!place || !is_delicate(tensor)) return low_;
  // The first and the last eighth of the layers, and every third between.
  const std::uint64_t layers = layers_.find(place->stack)->second;
  const std::uint64_t eighth = layers / 8;
  const bool is_chosen = place->layer < eighth || place->layer >= 7 * layers / 8 || (place->layer - eighth) % 3 == 2;
  return is_chosen ? high_ : low_;
}

}  // namespace ballast
