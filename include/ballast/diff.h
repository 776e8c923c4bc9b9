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

// How the values of two tensors of one shape differ. With one dtype it is the stored codes that count; with two, the numbers they
// stand for, as doubles, NaN being equal to NaN. The values of F6 cannot be told apart, so there it is bytes that are counted.
struct ValueDifference {
  std::uint64_t count = 0;
  std::uint64_t values = 0;   // in all
  std::uint64_t first = 0;    // the index of the first that differs
  double max_difference = 0;  // the largest |a - b|; infinite if one of a pair that differs is not finite; NaN for F6
};

struct TensorDifference {
  std::string name;
  DType dtype_a = DType::kBool;
  DType dtype_b = DType::kBool;
  std::vector<std::uint64_t> shape_a;
  std::vector<std::uint64_t> shape_b;
  std::optional<ValueDifference> values;  // empty when the shapes differ, or the dtypes and one of them is F6 or complex
};

struct DiffReport {
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  std::vector<TensorDifference> changed;  // another dtype, shape or value
  std::uint64_t same = 0;                 // tensors, in every respect
  std::vector<std::string> metadata;      // keys whose values differ; does not make models differ

  bool equal() const { return only_a.empty() && only_b.empty() && changed.empty(); }
};

// Compares names, dtypes, shapes and values, in blocks; the order of tensors and how they are spread over files does not matter.
Result<DiffReport> diff_models(const Model& a, const Model& b, const WorkOptions& work = {});

}  // namespace ballast
