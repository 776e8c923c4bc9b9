#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/tensor.h>
#include <ballast/weights.h>

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

// Arranges weights by the dots in their names. Numbered siblings with the same content share a row.
std::vector<TreeRow> make_tree(std::span<const Weight* const> weights);

// The dtype of a weight, or how it is stored if it is quantized: "int4 of 64".
std::string type_text(const Weight& weight);

}  // namespace ballast::cli
