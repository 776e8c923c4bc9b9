#include "quantize/gptq.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "quantize/gptq_tile.h"
#include "quantize/groups.h"
#include "quantize/packing.h"
#include "quantize/products.h"

namespace ballast {
namespace {

// One group of each row while it is quantized.
struct GroupBuffers {
  std::vector<Lanes> moved;         // the group's weights with the feedback
  std::vector<float> values;        // the same row by row
  std::vector<float> importance;    // one for each
  std::vector<std::uint8_t> codes;  // row by row as well
  std::array<float*, kLargestGroup> moved_columns{};

  explicit GroupBuffers(const RowFormat& format)
      : moved(span_size(format)),
        values(format.group_size * kTileRows),
        importance(format.group_size * kTileRows),
        codes(format.group_size * kTileRows) {
    for (std::size_t i = 0; i < moved.size(); ++i) moved_columns[i] = moved[i].data();
  }
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
      for (std::size_t i = 0; i < part; ++i) tile.errors[column + i][row] = values[i];
    }
  }
}

// Moves the group's weights by the errors of all columns before it.
void move_group(const Feedback& feedback, const Span& group, const Tile& tile, GroupBuffers& buffers) {
  std::array<const float*, kLargestGroup> weights{};
  for (std::size_t i = 0; i < group.count; ++i) {
    weights[i] = feedback.weights(group.first + i);
    buffers.moved[i] = tile.errors[group.first + i];
  }
  add_products({.left = std::span(weights).first(group.count),
                .right = tile.errors.front().data(),
                .right_stride = kTileRows,
                .terms = group.first,
                .sums = std::span(buffers.moved_columns).first(group.count),
                .width = kTileRows});
}

// Finds the group's parameters in every row, when its first columns were moved. A partial group is padded with values of no
// importance.
void search_parameters(const RowFormat& format, const Feedback& feedback, const Span& group, const Tile& tile,
                       GroupBuffers& buffers, GroupLanes& parameters) {
  const std::uint64_t columns = std::min<std::uint64_t>(format.group_size, format.columns - group.first);
  for (std::size_t row = 0; row < kTileRows; ++row) {
    float* const values = buffers.values.data() + row * format.group_size;
    float* const importance = buffers.importance.data() + row * format.group_size;
    for (std::size_t i = 0; i < format.group_size; ++i) {
      const std::uint64_t offset = i < columns ? i : 0;
      const std::uint64_t column = group.first + offset;
      const float unit = unit_of(format, column);
      const Lanes& lanes = offset < group.count ? buffers.moved[offset] : tile.errors[column];
      values[i] = lanes[row] / unit;
      importance[i] = i < columns ? feedback.pivots()[column] * unit * unit : 0.0F;
    }
  }
  const auto search = has_whole_zero(format.affine) ? search_whole_zero_groups : search_groups;
  search({.format = format,
          .groups = kTileRows,
          .values = buffers.values.data(),
          .importance = buffers.importance.data(),
          .codes = buffers.codes.data(),
          .scales = parameters.scales.data(),
          .offsets = parameters.offsets.data()});
}

// Quantizes one column to the nearest codes. `moved` becomes the gaps.
template <Affine kAffine>
void code_column(const RowFormat& format, std::uint64_t column, const GroupLanes& parameters, const Lanes& moved, Tile& tile) {
  const auto steps = static_cast<float>((1U << format.bits) - 1U);
  const float unit = unit_of(format, column);
  const float inverse_unit = 1.0F / unit;  // of a power of two
  for (std::size_t row = 0; row < kTileRows; ++row) {
    const float scale = parameters.scales[row];
    const float offset = parameters.offsets[row];
    const float inverse = 1.0F / scale;
    const float shift = kAffine == Affine::kScaleBias ? -offset * inverse : offset;
    const float code = nearest_code(moved[row] * inverse_unit * inverse + shift, steps);
    const float value = value_of_code<kAffine>(code, scale, offset) * unit;
    tile.codes[column][row] = static_cast<std::uint8_t>(code);
    tile.errors[column][row] -= value;
    tile.gaps[column][row] = moved[row] - value;
  }
}

// Quantizes the group's columns one by one, each moved by the errors of earlier columns in the group.
void code_group(const RowFormat& format, const Feedback& feedback, const Span& group, const GroupLanes& parameters, Tile& tile,
                GroupBuffers& buffers) {
  for (std::size_t i = 0; i < group.count; ++i) {
    const std::uint64_t column = group.first + i;
    const float* const weights = feedback.weights(column) + group.first;
    add_products({.left = std::span(&weights, 1),
                  .right = tile.errors[group.first].data(),
                  .right_stride = kTileRows,
                  .terms = i,
                  .sums = std::span(buffers.moved_columns).subspan(i, 1),
                  .width = kTileRows});
    const auto code = format.affine == Affine::kScaleBias ? code_column<Affine::kScaleBias> : code_column<Affine::kScaleZero>;
    code(format, column, parameters, buffers.moved[i], tile);
  }
}

void quantize_tile(const RowFormat& format, const Feedback& feedback, Tile& tile, GroupBuffers& buffers) {
  for (std::uint64_t i = 0; i < span_count(format); ++i) {
    const Span span = span_of(format, i);
    GroupLanes& parameters = tile.groups[span.group];
    move_group(feedback, span, tile, buffers);
    if (span.first % format.group_size == 0) search_parameters(format, feedback, span, tile, buffers, parameters);
    code_group(format, feedback, span, parameters, tile, buffers);
  }
}

void store_tile(const RowFormat& format, const Tile& tile, std::uint64_t first_row, std::size_t rows, const CodedRows& out) {
  std::array<std::uint8_t, kLargestGroup> codes{};
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint64_t row = first_row + i;
    for (std::uint64_t g = 0; g < format.groups(); ++g) {
      out.scales[row * format.groups() + g] = tile.groups[g].scales[i];
      out.offsets[row * format.groups() + g] = tile.groups[g].offsets[i];
    }
    for (std::uint64_t s = 0; s < span_count(format); ++s) {
      const Span group = span_of(format, s);
      for (std::size_t j = 0; j < group.count; ++j) codes[j] = tile.codes[group.first + j][i];
      pack_codes(format.bits, std::span(codes).first(group.count),
                 out.packed.data() + row * format.packed_bytes() + group.first * format.bits / 8);
    }
  }
}

// The sum of e H eᵀ over the first rows, without the damping.
double output_error(const Feedback& feedback, const Tile& tile, std::size_t rows) {
  std::array<double, kTileRows> sums{};
  for (std::size_t column = 0; column < tile.errors.size(); ++column) {
    const auto pivot = static_cast<double>(feedback.pivots()[column]);
    const auto damping = static_cast<double>(feedback.damping()[column]);
    for (std::size_t row = 0; row < kTileRows; ++row) {
      const auto gap = static_cast<double>(tile.gaps[column][row]);
      const auto error = static_cast<double>(tile.errors[column][row]);
      sums[row] += pivot * (gap * gap) - damping * (error * error);
    }
  }
  double sum = 0;
  for (std::size_t row = 0; row < rows; ++row) sum += std::max(sums[row], 0.0);
  return sum;
}

}  // namespace

GptqSums gptq_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const Feedback& feedback,
                   const CodedRows& out, std::span<const float> importance, unsigned passes) {
  assert(feedback.columns() == format.columns);
  const std::uint64_t count = rows.size() * 8 / bits(dtype) / format.columns;
  GptqSums sums;
  Tile tile(format);
  GroupBuffers buffers(format);
  for (std::uint64_t first_row = 0; first_row < count; first_row += kTileRows) {
    const std::size_t tile_rows = std::min<std::uint64_t>(kTileRows, count - first_row);
    load_tile(format, dtype, rows.data() + first_row * format.columns * bits(dtype) / 8, tile_rows, tile);
    quantize_tile(format, feedback, tile, buffers);
    refine_tile(format, feedback, passes, tile);
    store_tile(format, tile, first_row, tile_rows, out);
    sums.output_error += output_error(feedback, tile, tile_rows);
  }
  sums.quality = compare_rows(format, dtype, rows, out.packed, out.scales, out.offsets, importance);
  return sums;
}

std::uint64_t gptq_bytes(const RowFormat& format) {
  return Tile::bytes(format) + kTileRows * format.group_size * (3 * sizeof(float) + 1) + sizeof(GroupBuffers) + refine_bytes();
}

}  // namespace ballast
