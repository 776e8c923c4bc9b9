#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <ballast/model.h>

#include "base/file_names.h"

namespace ballast {

// A file beside the weights of an MLX directory, which MLX ignores: see docs/formats/mlx-quantized.md.
struct SideFileKind {
  std::string_view file;
  std::string_view format;  // in its metadata
  std::string_view member;  // of config.json, which refers to the file, so that its absence is noticed
};
inline constexpr SideFileKind kTimeAware{.file = kTimeAwareFile, .format = "timeaware.v1", .member = "time_aware_file"};
inline constexpr SideFileKind kEqualization{
    .file = kEqualizationFile, .format = "equalization.v1", .member = "equalization_file"};

// Whether a file of this name is one of these.
bool is_side_file(std::string_view name);

// Empty if the model has no such file and its config does not refer to one.
Result<std::optional<Model>> open_side_file(const Model& model, const SideFileKind& kind);

}  // namespace ballast
