#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// A slice of one dimension with Python's rules: negative numbers count from the end, bounds past the end are clamped, and `step`
// may be negative but not zero. {} selects everything.
struct Slice {
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;
};

// Parses text such as "0:10, :, ::2": one start:stop:step per dimension.
Result<std::vector<Slice>> parse_slices(std::string_view text);

}  // namespace ballast
