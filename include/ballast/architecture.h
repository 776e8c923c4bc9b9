#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/config.h>
#include <ballast/error.h>
#include <ballast/tensor.h>

namespace ballast {

struct ShapeMismatch {
  std::string name;
  std::vector<std::uint64_t> expected;
  std::vector<std::uint64_t> found;
};

// Differences between the tensors of a model and those that its config implies.
struct ArchitectureReport {
  std::uint64_t expected_tensors = 0;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<ShapeMismatch> misshaped;  // the shape differs

  bool ok() const { return missing.empty() && unexpected.empty() && misshaped.empty(); }
};

// Supports unquantized llama, mistral, qwen2 and qwen3 models, with or without a language-model head. Returns nothing for any
// other model. Fails if the config lacks a size that is needed.
Result<std::optional<ArchitectureReport>> check_architecture(const ModelConfig& config, std::span<const TensorInfo> tensors);

}  // namespace ballast
