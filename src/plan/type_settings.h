#pragma once

#include <ballast/quantize_config.h>

namespace ballast {

// Refuses settings that contradict the type or the format. The bits and the group size of the profile do not count as set.
Result<void> check_type(const QuantizeConfig& config);

// Refuses bits and a group size that were given, unless they are those of the type.
struct GivenNumbers {
  bool bit_width;
  bool group_size;
  bool type = false;
};
Result<void> check_given(const QuantizeConfig& config, const GivenNumbers& given);

// With the type of a format that has only one, and the bits and the group size of a type that fixes them.
QuantizeConfig with_numbers_of_type(QuantizeConfig config);

// The strategy that is given, or the default of the type and the format.
Strategy strategy_of(const QuantizeConfig& config);

}  // namespace ballast
