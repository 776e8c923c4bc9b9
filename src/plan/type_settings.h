#pragma once

#include <ballast/quantize_config.h>

namespace ballast {

// Refuses settings that contradict the type. The bits and the group size of the profile do not count as set.
Result<void> check_type(const QuantizeConfig& config);

// Refuses bits and a group size that were given, unless they are those of the type.
struct GivenNumbers {
  bool bit_width;
  bool group_size;
};
Result<void> check_given(const QuantizeConfig& config, const GivenNumbers& given);

// With the bits and the group size of the type, if it fixes them.
QuantizeConfig with_numbers_of_type(QuantizeConfig config);

}  // namespace ballast
