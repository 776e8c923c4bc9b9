#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/work.h>

namespace ballast {

// How the values of two tensors of the same shape differ. If the dtypes are equal, the stored bits are compared; otherwise the
// values, as doubles, with NaN equal to NaN. F6 has no standard packing, so for F6 the counts are bytes instead of values.
struct ValueDifference {
  std::uint64_t count = 0;    // values that differ
  std::uint64_t values = 0;   // values compared
  std::uint64_t first = 0;    // index of the first value that differs
  double max_difference = 0;  // largest |a - b|; infinite if a differing pair includes a value that is not finite; NaN for F6
};

struct TensorDifference {
  std::string name;
  DType dtype_a = DType::kBool;
  DType dtype_b = DType::kBool;
  std::vector<std::uint64_t> shape_a;
  std::vector<std::uint64_t> shape_b;
  // Empty if the shapes differ, or if the dtypes differ and one of them is F6 or complex.
  std::optional<ValueDifference> values;
};

struct DiffReport {
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  std::vector<TensorDifference> changed;  // different dtype, shape or values
  std::uint64_t same = 0;                 // tensors with equal dtype, shape and values
  std::vector<std::string> metadata;      // keys whose values differ; ignored by equal()

  bool equal() const { return only_a.empty() && only_b.empty() && changed.empty(); }
};

// Compares names, dtypes, shapes and values, block by block. Ignores the order of tensors and how they are split into files.
Result<DiffReport> diff_models(const Model& a, const Model& b, const WorkOptions& work = {});

}  // namespace ballast
