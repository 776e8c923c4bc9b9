#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ballast/error.h>
#include <ballast/slice.h>
#include <ballast/tensor.h>

#include "source/source.h"

namespace ballast {

// The bytes of a slice, as runs of equal length: `run` bytes at first + Σ index[i] · steps[i].stride.
struct SlicePlan {
  struct Step {
    std::uint64_t count;
    std::int64_t stride;  // in bytes
  };
  std::vector<std::uint64_t> shape;
  std::uint64_t first = 0;
  std::uint64_t run = 0;
  std::vector<Step> steps;  // outermost first; every count is at least 2
  std::uint64_t bytes = 0;  // of the whole slice
};

// The result of Python's slice.indices() for a dimension of `size`.
struct SliceRange {
  std::int64_t start;  // index of the first element; undefined if count is 0
  std::int64_t step;
  std::uint64_t count;
};
SliceRange resolve_slice(const Slice& slice, std::int64_t size);

Result<SlicePlan> plan_slice(Shape shape, DType dtype, std::span<const Slice> slices);

// Copies the planned bytes of a tensor that starts at `base` in `source`. Runs that are close together share a read.
Result<void> read_slice(const Source& source, std::uint64_t base, const SlicePlan& plan, std::span<std::byte> out);

}  // namespace ballast
