#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.h>

#include "base/regex.h"

namespace ballast {

inline constexpr std::string_view kLoraConfigFile = "adapter_config.json";

// How PEFT scales the changes of an adapter.
class LoraConfig {
 public:
  // Reads the members whose names start with `prefix`: diffusers stores the configs of all components in one object. Empty if
  // there are none. Refuses settings that change more than the product of two matrices.
  static Result<std::optional<LoraConfig>> parse(std::string_view json, std::string_view prefix);

  bool fan_in_fan_out() const { return fan_in_fan_out_; }
  // alpha / rank or alpha / √rank. Fails if the config has another rank for the module.
  Result<double> scale_of(std::string_view module, std::uint64_t rank) const;

 private:
  template <class T>
  using Pattern = std::pair<Regex, T>;

  std::optional<std::uint64_t> rank_;
  double alpha_ = 0;
  bool by_root_ = false;  // rank-stabilized
  bool fan_in_fan_out_ = false;
  std::vector<Pattern<std::uint64_t>> ranks_;
  std::vector<Pattern<double>> alphas_;

  friend class LoraConfigReader;
};

}  // namespace ballast
