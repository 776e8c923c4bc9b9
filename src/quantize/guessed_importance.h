#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/dtype.h>

namespace ballast {

// Guesses from a matrix alone how large the inputs of its columns are. In trained models, columns that meet huge inputs have
// weights that are unusually small, unusually large, or heavy-tailed. With m the mean square of a column divided by the median
// over all columns, and k its kurtosis likewise, but at least 1, the importance is (max(m, 1/m) · k)^1.5, at most 10,000.
class GuessedImportance {
 public:
  explicit GuessedImportance(std::uint64_t columns) : squares_(columns), fourths_(columns) {}

  // Adds whole rows.
  void add(DType dtype, std::span<const std::byte> rows);

  // One value for each column. Empty if some weights are not finite or all are 0. The result does not depend on the processor.
  std::vector<float> importance() const;

 private:
  std::uint64_t rows_ = 0;
  std::vector<double> squares_;
  std::vector<double> fourths_;
};

// Adjacent rows of a matrix.
struct RowRun {
  std::uint64_t first;
  std::uint64_t count;
};

// The rows that the importance of a matrix is guessed from: all, or 1,024 that are spread over it.
std::vector<RowRun> rows_to_guess_from(std::uint64_t rows);

}  // namespace ballast
