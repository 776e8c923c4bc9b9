#include "quantize/hessian.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/try.h"
#include "quantize/importance.h"
#include "quantize/products.h"

namespace ballast {
namespace {

constexpr std::uint64_t kPanel = 64;  // rows that are read, or eliminated, at once

// Padded, because rows at distances of powers of two compete for the same cache lines.
constexpr std::uint64_t panel_stride(std::uint64_t columns) { return columns + 16; }

// Checks the values left of the diagonal in row `row` of H against their mirror images from the rows above.
Result<void> check_row(const Triangle& triangle, std::span<const double> roots, std::uint64_t row, const float* values) {
  const float* const mirrored = triangle.row(row);
  for (std::uint64_t column = 0; column < row; ++column) {
    const double most = roots[row] * roots[column];
    const double larger_root = std::max(roots[row], roots[column]);
    const double slack = 1e-6 * larger_root * larger_root;  // for squares too small for a float
    const auto value = static_cast<double>(values[column]);
    const auto mirror = static_cast<double>(mirrored[column]);
    if (std::abs(value - mirror) > 1e-3 * most + slack) {
      return fail(Errc::kCorrupt, "not symmetric: {} in row {}, column {}, but {} in row {}, column {}", values[column], row,
                  column, mirrored[column], column, row);
    }
    if (std::abs(value) > 1.01 * most + slack) {
      return fail(Errc::kCorrupt, "{} in row {}, column {} is more than the diagonal allows, {}", values[column], row, column,
                  most);
    }
  }
  return {};
}

Result<void> check_numbers(std::uint64_t row, std::span<const float> values) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end()) return fail(Errc::kCorrupt, "{} in row {}, column {}", *bad, row, bad - values.begin());
  if (values[row] < 0) return fail(Errc::kCorrupt, "{} on the diagonal in row {}", values[row], row);
  return {};
}

// Values right of the diagonal are stored at their mirror image's place until that is read.
Result<Triangle> read_matrix(std::uint64_t columns, const Feedback::ReadRows& read) {
  Triangle triangle(columns);
  std::vector<double> roots(columns);  // of the diagonal
  std::vector<float> rows(std::min(kPanel, columns) * columns);
  for (std::uint64_t first = 0; first < columns; first += kPanel) {
    const std::uint64_t end = std::min(first + kPanel, columns);
    const std::span piece = std::span(rows).first((end - first) * columns);
    if (auto done = read(first, piece); !done) return std::unexpected(std::move(done).error());
    for (std::uint64_t row = first; row < end; ++row) {
      const std::span values = piece.subspan((row - first) * columns, columns);
      if (auto checked = check_numbers(row, values); !checked) return std::unexpected(std::move(checked).error());
      triangle.diagonal[row] = values[row];
      roots[row] = std::sqrt(static_cast<double>(values[row]));
    }
    for (std::uint64_t column = first + 1; column < columns; ++column) {
      float* const mirrored = triangle.row(column) + first;
      const std::uint64_t count = std::min(column, end) - first;
      for (std::uint64_t i = 0; i < count; ++i) mirrored[i] = piece[i * columns + column];
    }
    for (std::uint64_t row = first; row < end; ++row) {
      if (auto checked = check_row(triangle, roots, row, piece.data() + (row - first) * columns); !checked) {
        return std::unexpected(std::move(checked).error());
      }
    }
  }
  return triangle;
}

// Scales the matrix to a mean diagonal of 1, so that products neither overflow nor underflow, adds the damping to the diagonal
// and returns it.
Result<std::vector<float>> normalize(Triangle& triangle, double damping) {
  const double sum = std::accumulate(triangle.diagonal.begin(), triangle.diagonal.end(), 0.0);
  if (sum == 0) return fail(Errc::kCorrupt, "all {} values on the diagonal are 0", triangle.diagonal.size());
  const double mean = sum / static_cast<double>(triangle.diagonal.size());
  for (float& value : triangle.below) value = static_cast<float>(static_cast<double>(value) / mean);
  for (float& value : triangle.diagonal) value = static_cast<float>(static_cast<double>(value) / mean);
  const auto least = static_cast<double>(least_importance(triangle.diagonal));
  std::vector<float> added;
  for (float& value : triangle.diagonal) {
    added.push_back(static_cast<float>(damping * std::sqrt(static_cast<double>(value)) + least));
    value += added.back();
  }
  return added;
}

// The squares on the diagonal, of kNear rows and columns each.
std::vector<float> squares_of(const Triangle& triangle) {
  constexpr std::uint64_t kNear = Feedback::kNear;
  const std::uint64_t columns = triangle.diagonal.size();
  std::vector<float> near(columns * kNear);
  for (std::uint64_t row = 0; row < columns; ++row) {
    const std::uint64_t first = row - row % kNear;
    near[row * kNear + row - first] = triangle.diagonal[row];
    for (std::uint64_t column = first; column < row; ++column) {
      const float value = triangle.row(row)[column];
      near[row * kNear + column - first] = value;
      near[column * kNear + row - first] = value;
    }
  }
  return near;
}

// Some rows of the matrix that are eliminated together, each with its diagonal.
struct Panel {
  std::uint64_t first;
  std::uint64_t count;
  std::uint64_t stride;
  float* values;

  float* row(std::uint64_t index) const { return values + index * stride; }
};

// Computes the final values of a panel's rows, last row first. The panels after it are already eliminated.
Result<void> factor_panel(Triangle& triangle, const Panel& panel) {
  std::array<float, kPanel> factors{};
  for (std::uint64_t i = panel.count; i-- > 0;) {
    const std::uint64_t column = panel.first + i;
    float* const row = panel.row(i);
    std::copy_n(triangle.row(column), column, row);
    row[column] = triangle.diagonal[column];
    for (std::uint64_t j = i + 1; j < panel.count; ++j) {
      factors[j] = -triangle.diagonal[panel.first + j] * panel.row(j)[column];
    }
    const float* const left = factors.data() + i + 1;
    add_products({.left = std::span(&left, 1),
                  .right = panel.row(i + 1),
                  .right_stride = panel.stride,
                  .terms = panel.count - i - 1,
                  .sums = std::span(&row, 1),
                  .width = column + 1});
    const float pivot = row[column];
    if (!(pivot > 0)) return fail(Errc::kCorrupt, "not positive semidefinite: pivot {} in row {}", pivot, column);
    triangle.diagonal[column] = pivot;
    for (std::uint64_t x = 0; x < column; ++x) row[x] /= pivot;
    std::copy_n(row, column, triangle.row(column));
  }
  return {};
}

// Eliminates a panel from kPanel rows before it.
void eliminate(Triangle& triangle, const Panel& panel, std::uint64_t first) {
  std::array<float, kPanel * kPanel> factors{};
  std::array<float, kPanel * kPanel> corner{};  // the rows' own columns, only partly stored
  std::array<const float*, kPanel> left{};
  std::array<float*, kPanel> sums{};
  std::array<float*, kPanel> corner_sums{};
  for (std::uint64_t i = 0; i < kPanel; ++i) {
    for (std::uint64_t j = 0; j < panel.count; ++j) {
      factors[i * kPanel + j] = -triangle.diagonal[panel.first + j] * panel.row(j)[first + i];
    }
    left[i] = factors.data() + i * kPanel;
    sums[i] = triangle.row(first + i);
    corner_sums[i] = corner.data() + i * kPanel;
    std::copy_n(sums[i] + first, i, corner_sums[i]);
    corner_sums[i][i] = triangle.diagonal[first + i];
  }
  Products products{
      .left = left, .right = panel.values, .right_stride = panel.stride, .terms = panel.count, .sums = sums, .width = first};
  add_products(products);
  products.right += first;
  products.sums = corner_sums;
  products.width = kPanel;
  add_products(products);
  for (std::uint64_t i = 0; i < kPanel; ++i) {
    std::copy_n(corner_sums[i], i, sums[i] + first);
    triangle.diagonal[first + i] = corner_sums[i][i];
  }
}

// From the last rows to the first.
Result<void> factor(Triangle& triangle, unsigned threads) {
  const std::uint64_t columns = triangle.diagonal.size();
  const std::uint64_t stride = panel_stride(columns);
  std::vector<float> values(std::min(kPanel, columns) * stride);
  for (std::uint64_t before = (columns - 1) / kPanel + 1; before-- > 0;) {
    const std::uint64_t first = before * kPanel;
    const Panel panel{.first = first, .count = std::min(kPanel, columns - first), .stride = stride, .values = values.data()};
    TRY(factor_panel(triangle, panel));
    parallel_for(before, threads, [&](unsigned, std::size_t i) {
      eliminate(triangle, panel, (before - 1 - i) * kPanel);  // the longest first
      return true;
    });
  }
  return {};
}

}  // namespace

Result<Feedback> Feedback::make(std::uint64_t columns, const ReadRows& read, unsigned threads, double damping) {
  auto triangle = read_matrix(columns, read);
  if (!triangle) return std::unexpected(std::move(triangle).error());
  auto added = normalize(*triangle, damping);
  if (!added) return std::unexpected(std::move(added).error());
  std::vector<float> near = squares_of(*triangle);
  if (auto done = factor(*triangle, threads); !done) return std::unexpected(std::move(done).error());
  return Feedback(*std::move(triangle), std::move(near), *std::move(added));
}

std::uint64_t Feedback::bytes(std::uint64_t columns) {
  const std::uint64_t values =
      columns * (columns - 1) / 2 + (kNear + 4) * columns + std::min(kPanel, columns) * panel_stride(columns);
  return values * sizeof(float);
}

}  // namespace ballast
