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

// How the tensors of a model differ from those its config implies.
struct ArchitectureReport {
  std::uint64_t expected_tensors = 0;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<ShapeMismatch> misshaped;

  bool ok() const { return missing.empty() && unexpected.empty() && misshaped.empty(); }
};

// Knows llama, mistral, qwen2 and qwen3, unquantized, as language models and as bare stacks of layers; empty for any other. Fails
// when the config lacks a size it needs.
Result<std::optional<ArchitectureReport>> check_architecture(const ModelConfig& config, std::span<const TensorInfo> tensors);

}  // namespace ballast
