#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/tensor.h>

namespace ballast::cli {

// One line of a tree of tensors: a tensor or a group, possibly for several numbered ones with the same content.
struct TreeRow {
  std::string branch;  // the lines that lead to it: "│  ├─ "
  std::string label;   // layers.{0…27}
  std::string dtype;   // empty for a group
  std::string shape;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

// Arranges tensors by the dots in their names. Numbered siblings with the same content share a row.
std::vector<TreeRow> make_tree(std::span<const TensorInfo* const> tensors);

}  // namespace ballast::cli
