#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include <ballast/model.h>
#include <ballast/quantize_config.h>

namespace ballast {

// Gives more bits to sensitive layers, chosen by name as in mlx-lm.
class MixedBits {
 public:
  // `recipe` is not kUniform. Fails with kUnsupported on a model that has no layers named down_proj. The model must outlive it.
  static Result<MixedBits> make(const Model& model, Recipe recipe);

  unsigned bits(std::string_view tensor) const;

 private:
  explicit MixedBits(Recipe recipe);

  unsigned low_;
  unsigned high_;
  std::map<std::string_view, std::uint64_t> layers_;  // the number of layers in "model.layers." and the like
};

}  // namespace ballast
