#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

enum class CtCodes : std::uint8_t { kPacked, kI8, kF8, kNvfp4, kMxfp4, kMxfp8 };

// The tensors of one quantized module, and the shape of its weight.
struct CtModule {
  std::string name;  // empty for a weight outside of modules
  CtCodes kind = CtCodes::kPacked;
  const TensorInfo* codes = nullptr;
  const TensorInfo* scale = nullptr;
  const TensorInfo* divisor = nullptr;       // weight_global_scale of kNvfp4
  const TensorInfo* zeros = nullptr;         // null if the weight is symmetric
  const TensorInfo* group_index = nullptr;   // null if groups are in order
  const TensorInfo* shape_tensor = nullptr;  // weight_shape of kPacked
  std::vector<std::uint64_t> shape;          // [rows, columns], or [matrices, rows, columns]

  std::uint64_t matrices() const { return shape.size() == 3 ? shape.front() : 1; }
  std::uint64_t rows() const { return shape[shape.size() - 2]; }  // of one matrix
  std::uint64_t columns() const { return shape.back(); }
};

// Leaf names of the tensors with codes.
inline constexpr std::string_view kCtPacked = "weight_packed";
inline constexpr std::string_view kCtWeight = "weight";

// Whether the last part of a tensor's name is `leaf`.
bool has_leaf(std::string_view name, std::string_view leaf);

// Collects the tensors of a module by the one that holds its codes, whose leaf name is one of the above. Checks dtypes and the
// shape of the codes, reads weight_shape, and checks nothing that needs the config.
Result<CtModule> find_module(const Model& model, const TensorInfo& codes);

}  // namespace ballast
