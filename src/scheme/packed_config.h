#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

#include "base/regex.h"
#include "scheme/declared.h"

namespace ballast {

// How a module's integer codes are packed, as far as the config says it.
struct PackedSettings {
  std::optional<unsigned> bits;
  std::optional<std::uint64_t> group_size;  // 0: all columns
};

// The keys that GPTQ, AWQ and AutoRound use, with overrides for modules: `dynamic` of GPTQModel and `extra_config` of AutoRound.
class PackedConfig {
 public:
  // `declared` describes the same weights, the most specific section first; all must agree. Not empty.
  static Result<PackedConfig> parse(const Model& model, std::span<const Declared> declared);

  const Section& section() const { return sections_.front(); }
  // The first section's value for one of these keys, in lower case.
  Result<std::optional<std::string>> text(std::span<const std::string_view> keys) const;
  Result<std::optional<bool>> flag(std::string_view key) const;

  // For "model.layers.0.mlp.up_proj". Empty if an override leaves the module unquantized, or has a pattern that cannot be
  // evaluated: then the tensors decide.
  PackedSettings of(std::string_view module) const;

 private:
  // The settings of modules with this name, or whose name matches.
  struct Override {
    std::string name;
    std::optional<Regex> regex;  // empty if there is a name, or if the pattern cannot be evaluated
    bool is_quantized = true;
    PackedSettings settings;
  };

  Result<void> check_agreement() const;
  Result<void> add_dynamic();
  Result<void> add_extra(const Model& model);
  Result<void> add(Override override, const Section& section);

  std::vector<Section> sections_;
  PackedSettings settings_;
  std::vector<Override> overrides_;  // the first that applies wins
};

// Weights that are rotated cannot be used without the rotation of their inputs: kUnsupported.
Result<void> refuse_rotation(const Section& section);

// Transformers stores some models' layers transposed, but these schemes do not: kUnsupported for such models.
Result<void> refuse_conv1d(const Model& model);

}  // namespace ballast
