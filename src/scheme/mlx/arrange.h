#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// A model with the tensors that mlx-lm has after loading it: see MlxArchitecture.
struct MlxArrangement {
  std::optional<Model> model;            // reads from the original, which must outlive it; empty: the same tensors
  std::vector<std::string> left_out;     // tensors of the original that are not in it
  std::vector<std::string> unquantized;  // its tensors of two or more dimensions that mlx-lm cannot hold quantized
  std::map<std::string, std::vector<std::string>, std::less<>> renamed;  // all of the original, and those made of each alone
  std::vector<std::string> notes;                                        // what was done, for the user
  std::vector<std::pair<std::string, std::string>> config;               // members to set in config.json: names and JSON

  const Model& model_or(const Model& original) const { return model ? *model : original; }
};

// By the model_type in the config. A model without one, or of an architecture that mlx-lm does not have, stays as it is. Fails
// with kUnsupported for an architecture whose weights mlx-lm changes in other ways. Reads the output layer and the embedding if
// the config does not say whether they are the same.
Result<MlxArrangement> arrange_for_mlx_lm(const Model& model);

// Whether a tensor of this name has its place only in mlx-lm, and not in the original of a model of this type.
bool is_arranged_name(std::string_view model_type, std::string_view name);

}  // namespace ballast
