#pragma once

#include <cstdint>
#include <string_view>

#include <ballast/error.h>

#include "scheme/declared.h"

namespace ballast {

// AutoRound stores weights as other programs do, and says how in its `packing_format`.
enum class AutoRoundPacking : std::uint8_t {
  kGptq,    // zero points minus 1
  kGptqV2,  // zero points as they are
  kAwq,
};

// Whether a quant_method in lower case is AutoRound's.
bool is_auto_round(std::string_view method);

// kUnsupported for a packing that is none of these.
Result<AutoRoundPacking> auto_round_packing(const Section& section);

}  // namespace ballast
