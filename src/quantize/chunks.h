#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/dtype.h>

#include "quantize/groups.h"
#include "quantize/rows.h"

namespace ballast {

// Values per chunk: whole groups of the usual sizes, and everything fits in the L1 cache.
inline constexpr std::size_t kChunk = 2048;

// Adjacent values: some groups of a row, a partial group at its end, or several rows of whole groups.
struct Chunk {
  std::uint64_t row;
  std::uint64_t column;
  std::size_t count;
};

// Calls work(chunk) for `rows` rows from `first` on. Chunks depend on the format alone, so sums of floats do as well.
template <class Work>
void for_each_chunk(const RowFormat& format, std::uint64_t first, std::uint64_t rows, Work&& work) {
  const std::uint64_t whole = format.columns - format.columns % format.group_size;
  const std::uint64_t most = std::max<std::uint64_t>(kChunk - kChunk % format.group_size, format.group_size);
  const std::uint64_t rows_at_once = whole == format.columns ? std::max<std::uint64_t>(kChunk / format.columns, 1) : 1;
  const std::uint64_t end = first + rows;
  for (std::uint64_t row = first; row < end; row += rows_at_once) {
    if (rows_at_once > 1) {
      work(Chunk{.row = row, .column = 0, .count = std::min(rows_at_once, end - row) * format.columns});
      continue;
    }
    for (std::uint64_t column = 0; column < whole; column += most) {
      work(Chunk{.row = row, .column = column, .count = std::min<std::uint64_t>(most, whole - column)});
    }
    if (whole < format.columns) work(Chunk{.row = row, .column = whole, .count = format.columns - whole});
  }
}

inline std::size_t groups_of(const RowFormat& format, std::size_t count) {
  return (count + format.group_size - 1) / format.group_size;
}

// Buffers for a chunk. A partial group is padded with its first value at no importance, which changes neither its range nor any
// sum.
struct ChunkBuffers {
  std::vector<float> values;
  std::vector<float> importance;
  std::vector<float> decoded;
  std::vector<std::uint8_t> codes;

  explicit ChunkBuffers(const RowFormat& format)
      : values(size(format)), importance(size(format)), decoded(size(format)), codes(size(format)) {}

 private:
  static std::size_t size(const RowFormat& format) { return std::max<std::size_t>(kChunk, format.group_size); }
};

// Per-column numbers expanded to the values of a chunk; 1 if there are none.
class ByColumn {
 public:
  ByColumn(std::span<const float> columns, const Chunk& chunk) : columns_(columns), next_(chunk.column) {}

  float next() {
    if (columns_.empty()) return 1;
    const float value = columns_[next_];
    next_ = next_ + 1 == columns_.size() ? 0 : next_ + 1;
    return value;
  }

 private:
  std::span<const float> columns_;
  std::size_t next_;
};

// The values as floats, without a copy if they are F32 and whole groups.
const float* values_of(const RowFormat& format, DType dtype, const std::byte* bytes, const Chunk& chunk, ChunkBuffers& buffers);

// The importance of each value of the chunk, after column scaling; null if all are equal.
const float* importance_of(const RowFormat& format, std::span<const float> importance, const Chunk& chunk, ChunkBuffers& buffers);

// Fills the scales of all rows of a type whose scales are floats: those of bands, or the one of the tensor.
void choose_band_scales(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                        std::span<const float> importance, std::span<float> scales);

}  // namespace ballast
