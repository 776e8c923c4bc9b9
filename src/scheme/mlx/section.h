#pragma once

#include <span>
#include <string>
#include <string_view>

#include <ballast/error.h>

#include "scheme/mlx/side_files.h"
#include "scheme/writer.h"

namespace ballast {

// The module that a weight belongs to, which is what MLX calls it by: its name without `.weight`.
std::string_view module_of(std::string_view tensor);

// The section `quantization` of a config, as JSON. Names may be taken for patterns, or for those of other layers; a layer that
// would be misread for that gets an entry of its own.
Result<std::string> quantization_section(const OutputPlan& plan);

// A config whose sections about quantization are `section`, as JSON, in place of those it may have; without any if that is empty.
// It names the side files, too.
std::string with_quantization(std::string_view config, std::string_view section, std::span<const SideFileKind> sides = {});

}  // namespace ballast
