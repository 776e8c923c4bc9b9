#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quantize/hessian.h"
#include "quantize/rows.h"

namespace ballast {

inline constexpr std::size_t kTileRows = 64;  // processed together
inline constexpr std::size_t kLargestGroup = 256;

using Lanes = std::array<float, kTileRows>;  // one value of each row
using CodeLanes = std::array<std::uint8_t, kTileRows>;

// The parameters of one group of each row.
struct GroupLanes {
  alignas(64) Lanes scales{};
  alignas(64) Lanes offsets{};
};

// Rows that GPTQ quantizes together, column by column.
struct Tile {
  std::vector<Lanes> errors;     // e of each column: weight minus quantized weight; the weight itself before that
  std::vector<Lanes> gaps;       // e U, the errors with those that were passed on
  std::vector<CodeLanes> codes;  // of each column
  std::vector<GroupLanes> groups;

  explicit Tile(const RowFormat& format)
      : errors(format.columns), gaps(format.columns), codes(format.columns), groups(format.groups()) {}

  static std::uint64_t bytes(const RowFormat& format) {
    return format.columns * (2 * sizeof(Lanes) + sizeof(CodeLanes)) + format.groups() * sizeof(GroupLanes);
  }
};

// Columns that are quantized together: a group, or a part of one that is longer than the longest of the usual ones.
struct Span {
  std::uint64_t first;
  std::size_t count;
  std::uint64_t group;  // their parameters
};

inline std::uint64_t span_size(const RowFormat& format) {
  constexpr std::uint64_t kPart = 128;
  return format.group_size <= kLargestGroup ? format.group_size : kPart;
}
inline std::uint64_t span_count(const RowFormat& format) { return (format.columns + span_size(format) - 1) / span_size(format); }

inline Span span_of(const RowFormat& format, std::uint64_t index) {
  const std::uint64_t first = index * span_size(format);
  return {.first = first,
          .count = std::min<std::uint64_t>(span_size(format), format.columns - first),
          .group = first / format.group_size};
}

// The factor of a column in RowFormat::restore.
inline float unit_of(const RowFormat& format, std::uint64_t column) {
  return format.restore.empty() ? 1.0F : format.restore[column];
}

// What a code stands for, before the factor of its column.
template <Affine kAffine>
float value_of_code(float code, float scale, float offset) {
  return kAffine == Affine::kScaleBias ? code * scale + offset : (code - offset) * scale;
}

// The code, bit for bit as in search; NaN gets 0.
inline float nearest_code(float place, float steps) {
  constexpr float kIntegerShift = 12582912.0F;  // adding it leaves an integer
  const float inside = place > 0 ? (place < steps ? place : steps) : 0.0F;
  return (inside + kIntegerShift) - kIntegerShift;
}

// Lowers the error of a tile that is quantized: fits the parameters of each group to its codes, then takes the best code of each
// column while all others stay, `passes` times. Every step lowers e H eᵀ, so the result is never worse.
void refine_tile(const RowFormat& format, const Feedback& feedback, unsigned passes, Tile& tile);

// The memory that refine_tile() allocates.
std::uint64_t refine_bytes();

}  // namespace ballast
