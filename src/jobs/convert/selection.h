#pragma once

#include <cstdint>
#include <vector>

#include <ballast/convert_model.h>

namespace ballast {

// The tensors to convert, in the order of the model.
struct Selection {
  std::vector<const TensorInfo*> sources;
  std::vector<TensorSpec> targets;  // one for each source
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

// Applies include, exclude, renames and dtypes.
Result<Selection> select_tensors(const Model& model, const ConvertOptions& options);

// The dtype that a floating tensor is converted to.
DType float_target(std::string_view name, DType from, const ConvertOptions& options);

// `name` after `rename`; empty if it does not match.
std::optional<std::string> apply_rename(const Rename& rename, std::string_view name);

}  // namespace ballast
