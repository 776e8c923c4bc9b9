#include "quantize/guessed_importance.h"

#include <algorithm>
#include <cmath>

#include "quantize/groups.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostRows = 1024;
constexpr std::uint64_t kRowsInARun = 8;
constexpr double kMostImportance = 1e4;

// Of the values above 0, of which there is at least one.
double median_of_positive(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !(value > 0); });
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void GuessedImportance::add(DType dtype, std::span<const std::byte> rows) {
  const std::size_t columns = squares_.size();
  const std::size_t row_bytes = columns * bits(dtype) / 8;
  std::vector<float> values(columns);
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    load_values(dtype, rows.data() + at, columns, values);
    for (std::size_t i = 0; i < columns; ++i) {
      const double square = static_cast<double>(values[i]) * static_cast<double>(values[i]);
      squares_[i] += square;
      fourths_[i] += square * square;
    }
    ++rows_;
  }
}

std::vector<float> GuessedImportance::importance() const {
  const auto is_finite = [](double sum) { return std::isfinite(sum); };
  if (!std::ranges::all_of(squares_, is_finite) || std::ranges::none_of(squares_, [](double sum) { return sum > 0; })) return {};
  std::vector<double> kurtosis(squares_.size());
  for (std::size_t i = 0; i < kurtosis.size(); ++i) {
    if (squares_[i] > 0) kurtosis[i] = fourths_[i] / squares_[i] * (static_cast<double>(rows_) / squares_[i]);
  }
  const double square = median_of_positive(squares_);
  const double usual_kurtosis = median_of_positive(kurtosis);
  std::vector<float> importance(squares_.size(), 1.0F);
  for (std::size_t i = 0; i < importance.size(); ++i) {
    if (!(squares_[i] > 0)) continue;
    const double size = squares_[i] / square;
    const double product = std::max(size, 1 / size) * std::max(kurtosis[i] / usual_kurtosis, 1.0);
    importance[i] = static_cast<float>(std::min(product * std::sqrt(product), kMostImportance));
  }
  return importance;
}

std::vector<RowRun> rows_to_guess_from(std::uint64_t rows) {
  if (rows <= kMostRows) return {{.first = 0, .count = rows}};
  constexpr std::uint64_t kRuns = kMostRows / kRowsInARun;
  std::vector<RowRun> runs;
  for (std::uint64_t i = 0; i < kRuns; ++i)
    runs.push_back({.first = (rows - kRowsInARun) * i / (kRuns - 1), .count = kRowsInARun});
  return runs;
}

}  // namespace ballast
