#include "quantize/gptq.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "quantize/groups.h"
#include "quantize/packing.h"
#include "quantize/products.h"

namespace ballast {
namespace {

constexpr std::size_t kTileRows = 64;  // processed together
constexpr std::size_t kLargestGroup = 256;

using Lanes = std::array<float, kTileRows>;  // one value of each row

// The rows of a tile, and one group of each.
struct Tile {
  std::vector<Lanes> columns;  // the weights; after quantizing, their errors

  std::vector<Lanes> moved;         // the group's weights with the feedback
  std::vector<float> values;        // the same row by row
  std::vector<float> importance;    // one for each
  std::vector<std::uint8_t> codes;  // row by row as well
  std::array<float*, kLargestGroup> moved_columns{};

  alignas(64) Lanes scales{};
  alignas(64) Lanes offsets{};
  alignas(64) Lanes inverses{};
  alignas(64) Lanes shifts{};
  std::array<double, kTileRows> costs{};

  explicit Tile(const RowFormat& format)
      : columns(format.columns),
        moved(format.group_size),
        values(format.group_size * kTileRows),
        importance(format.group_size * kTileRows),
        codes(format.group_size * kTileRows) {
    for (std::size_t i = 0; i < moved.size(); ++i) moved_columns[i] = moved[i].data();
  }
};

// A group's columns.
struct Columns {
  std::uint64_t first;
  std::size_t count;
};

// Missing rows are zeros.
void load_tile(const RowFormat& format, DType dtype, const std::byte* rows, std::size_t count, Tile& tile) {
  std::array<float, 1024> values{};
  for (std::size_t row = 0; row < kTileRows; ++row) {
    for (std::uint64_t column = 0; column < format.columns; column += values.size()) {
      const std::size_t part = std::min<std::uint64_t>(values.size(), format.columns - column);
      if (row < count) {
        load_values(dtype, rows + (row * format.columns + column) * bits(dtype) / 8, part, values);
      } else {
        values.fill(0);
      }
      for (std::size_t i = 0; i < part; ++i) tile.columns[column + i][row] = values[i];
    }
  }
}

// Moves the group's weights by the errors of all columns before it.
void move_group(const Feedback& feedback, const Columns& group, Tile& tile) {
  std::array<const float*, kLargestGroup> weights{};
  for (std::size_t i = 0; i < group.count; ++i) {
    weights[i] = feedback.weights(group.first + i);
    tile.moved[i] = tile.columns[group.first + i];
  }
  add_products({.left = std::span(weights).first(group.count),
                .right = tile.columns.front().data(),
                .right_stride = kTileRows,
                .terms = group.first,
                .sums = std::span(tile.moved_columns).first(group.count),
                .width = kTileRows});
}

// The factor of a column in RowFormat::restore.
float unit_of(const RowFormat& format, std::uint64_t column) { return format.restore.empty() ? 1.0F : format.restore[column]; }

// Finds the group's parameters in every row. A partial group is padded with values of no importance.
void search_parameters(const RowFormat& format, const Feedback& feedback, const Columns& group, Tile& tile) {
  for (std::size_t row = 0; row < kTileRows; ++row) {
    float* const values = tile.values.data() + row * format.group_size;
    float* const importance = tile.importance.data() + row * format.group_size;
    for (std::size_t i = 0; i < format.group_size; ++i) {
      const std::uint64_t column = group.first + (i < group.count ? i : 0);
      const float unit = unit_of(format, column);
      values[i] = tile.moved[column - group.first][row] / unit;
      importance[i] = i < group.count ? feedback.pivots()[column] * unit * unit : 0.0F;
    }
  }
  search_groups({.format = format,
                 .groups = kTileRows,
                 .values = tile.values.data(),
                 .importance = tile.importance.data(),
                 .codes = tile.codes.data(),
                 .scales = tile.scales.data(),
                 .offsets = tile.offsets.data()});
  for (std::size_t row = 0; row < kTileRows; ++row) {
    tile.inverses[row] = 1.0F / tile.scales[row];
    tile.shifts[row] = format.affine == Affine::kScaleBias ? -tile.offsets[row] * tile.inverses[row] : tile.offsets[row];
  }
}

struct Column {
  float unit;     // as above
  float pivot;    // the weight of the remaining error
  float damping;  // excluded from the error
};

// Quantizes one column of the group to the nearest codes, bit for bit as in search; NaN gets code 0.
template <Affine kAffine>
void code_column(const RowFormat& format, const Column& of, const Lanes& moved, Lanes& column, Tile& tile, std::uint8_t* codes) {
  constexpr float kIntegerShift = 12582912.0F;  // adding it leaves an integer
  const auto steps = static_cast<float>((1U << format.bits) - 1U);
  const float inverse_unit = 1.0F / of.unit;  // of a power of two
  Lanes nearest{};
  for (std::size_t row = 0; row < kTileRows; ++row) {
    const float place = moved[row] * inverse_unit * tile.inverses[row] + tile.shifts[row];
    const float inside = place > 0 ? (place < steps ? place : steps) : 0.0F;
    const float code = (inside + kIntegerShift) - kIntegerShift;
    const float stored = kAffine == Affine::kScaleBias ? code * tile.scales[row] + tile.offsets[row]
                                                       : (code - tile.offsets[row]) * tile.scales[row];
    const float value = stored * of.unit;
    nearest[row] = code;
    const double gap = static_cast<double>(moved[row]) - static_cast<double>(value);
    column[row] -= value;
    const auto error = static_cast<double>(column[row]);
    tile.costs[row] += static_cast<double>(of.pivot) * (gap * gap) - static_cast<double>(of.damping) * (error * error);
  }
  for (std::size_t row = 0; row < kTileRows; ++row) codes[row * format.group_size] = static_cast<std::uint8_t>(nearest[row]);
}

// Quantizes the group's columns one by one, each moved by the errors of earlier columns in the group.
void code_group(const RowFormat& format, const Feedback& feedback, const Columns& group, Tile& tile) {
  for (std::size_t i = 0; i < group.count; ++i) {
    const float* const weights = feedback.weights(group.first + i) + group.first;
    add_products({.left = std::span(&weights, 1),
                  .right = tile.columns[group.first].data(),
                  .right_stride = kTileRows,
                  .terms = i,
                  .sums = std::span(tile.moved_columns).subspan(i, 1),
                  .width = kTileRows});
    const auto code = format.affine == Affine::kScaleBias ? code_column<Affine::kScaleBias> : code_column<Affine::kScaleZero>;
    const std::uint64_t column = group.first + i;
    const Column of{.unit = unit_of(format, column), .pivot = feedback.pivots()[column], .damping = feedback.damping()[column]};
    code(format, of, tile.moved[i], tile.columns[column], tile, tile.codes.data() + i);
  }
}

void store_group(const RowFormat& format, const Columns& group, const Tile& tile, std::uint64_t first_row, std::size_t tile_rows,
                 const CodedRows& out) {
  for (std::size_t i = 0; i < tile_rows; ++i) {
    const std::uint64_t row = first_row + i;
    const std::uint64_t place = row * format.groups() + group.first / format.group_size;
    out.scales[place] = tile.scales[i];
    out.offsets[place] = tile.offsets[i];
    pack_codes(format.bits, std::span(tile.codes).subspan(i * format.group_size, group.count),
               out.packed.data() + row * format.packed_bytes() + group.first * format.bits / 8);
  }
}

}  // namespace

GptqSums gptq_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const Feedback& feedback,
                   const CodedRows& out, std::span<const float> importance) {
  assert(feedback.columns() == format.columns && format.group_size <= kLargestGroup);
  const std::uint64_t count = rows.size() * 8 / bits(dtype) / format.columns;
  GptqSums sums;
  Tile tile(format);
  for (std::uint64_t first_row = 0; first_row < count; first_row += kTileRows) {
    const std::size_t tile_rows = std::min<std::uint64_t>(kTileRows, count - first_row);
    load_tile(format, dtype, rows.data() + first_row * format.columns * bits(dtype) / 8, tile_rows, tile);
    tile.costs.fill(0);
    for (std::uint64_t first = 0; first < format.columns; first += format.group_size) {
      const Columns group{.first = first, .count = std::min<std::uint64_t>(format.group_size, format.columns - first)};
      move_group(feedback, group, tile);
      search_parameters(format, feedback, group, tile);
      code_group(format, feedback, group, tile);
      store_group(format, group, tile, first_row, tile_rows, out);
    }
    for (std::size_t i = 0; i < tile_rows; ++i) sums.output_error += std::max(tile.costs[i], 0.0);
  }
  sums.quality = compare_rows(format, dtype, rows, out.packed, out.scales, out.offsets, importance);
  return sums;
}

std::uint64_t gptq_bytes(const RowFormat& format) {
  return kTileRows * (format.columns * sizeof(float) + format.group_size * (3 * sizeof(float) + 1)) + sizeof(Tile);
}

}  // namespace ballast
