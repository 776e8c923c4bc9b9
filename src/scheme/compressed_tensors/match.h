#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ballast/error.h>
#include <ballast/model.h>

#include "scheme/compressed_tensors/config.h"
#include "scheme/compressed_tensors/module.h"

namespace ballast {

// How the tensors of a module are read.
struct CtLayout {
  unsigned bits = 0;
  unsigned per_word = 0;         // as in Packing
  std::uint64_t group_rows = 0;  // rows and columns that share a scale
  std::uint64_t group_columns = 0;
  bool is_shared = false;  // all matrices share one scale

  bool operator==(const CtLayout&) const = default;
};

// The layout that the config gives a module and its tensors agree with; kCorrupt, with both values, if they do not agree.
Result<CtLayout> match_module(const Model& model, const CtModule& module, const CtConfig& config);

// The format that stores such codes: "pack-quantized".
std::string_view format_name(CtCodes kind);

}  // namespace ballast
