#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <ballast/error.h>

#include "scheme/mlx/side_files.h"
#include "scheme/writer.h"

namespace ballast {

// The module of a weight, by which the MLX config names it: its name without `.weight`.
std::string_view module_of(std::string_view tensor);

// The section `quantization` of a config, as JSON. A layer whose name would be mistaken for a pattern or for another layer gets
// its own entry.
Result<std::string> quantization_section(const OutputPlan& plan);

// A config whose quantization sections are replaced by `section`, as JSON, or removed if that is empty, and that refers to the
// side files.
std::string with_quantization(std::string_view config, std::string_view section, std::span<const SideFileKind> sides = {});

// A config with these members, names and JSON, in place of those of the same names.
std::string with_members(std::string_view config, std::span<const std::pair<std::string, std::string>> members);

}  // namespace ballast
