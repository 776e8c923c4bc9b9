#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// A symmetric or triangular matrix. The rows below the diagonal are stored consecutively, row k with k values.
struct Triangle {
  std::vector<float> below;
  std::vector<float> diagonal;

  explicit Triangle(std::uint64_t size) : below(size * (size - 1) / 2), diagonal(size) {}
  float* row(std::uint64_t index) { return below.data() + index * (index - 1) / 2; }
  const float* row(std::uint64_t index) const { return below.data() + index * (index - 1) / 2; }
};

// How later columns of weights compensate for the error of earlier ones. H = XᵀX of the inputs X of a layer, or its mean over
// them, is U D Uᵀ with U upper triangular, ones on its diagonal, and D diagonal. So an error e of a row of weights, which costs
// e H eᵀ, costs the sum of D_k (e U)_k².
//
// H is divided by the mean of its diagonal. Then `damping`, at least 2 %, times its square root is added to each value of the
// diagonal, so that inputs that correlate by chance count for less. A little more is added so that inputs that are always 0 give
// positive pivots.
class Feedback {
 public:
  static constexpr double kLeastDamping = 0.02;

  // Reads whole rows of H, one after the other. Called from one thread, with a bounded number of rows.
  using ReadRows = std::function<Result<void>(std::uint64_t first_row, std::span<float> rows)>;

  // Fails if H is not symmetric and positive semidefinite, or is all zeros. `columns` is at least 1. The result depends on
  // neither `threads` (0: one per core) nor the processor.
  static Result<Feedback> make(std::uint64_t columns, const ReadRows& read, unsigned threads, double damping = kLeastDamping);

  // Peak memory of make(); the result keeps nearly all of it.
  static std::uint64_t bytes(std::uint64_t columns);

  std::span<const float> damping() const { return damping_; }  // added to the diagonal, whose mean was 1
  std::uint64_t columns() const { return factors_.diagonal.size(); }
  // The values of U above the diagonal in a column, as many as there are columns before it.
  const float* weights(std::uint64_t column) const { return factors_.row(column); }
  // D, one for each column, all of them above 0.
  std::span<const float> pivots() const { return factors_.diagonal; }
  // The damped H itself near its diagonal: the values of a row in the columns from the last multiple of kNear on, kNear of them;
  // zeros past the last column.
  static constexpr std::uint64_t kNear = 256;
  const float* near(std::uint64_t row) const { return near_.data() + row * kNear; }

 private:
  Feedback(Triangle factors, std::vector<float> near, std::vector<float> damping)
      : factors_(std::move(factors)), near_(std::move(near)), damping_(std::move(damping)) {}

  Triangle factors_;  // Uᵀ below the diagonal, D on it
  std::vector<float> near_;
  std::vector<float> damping_;
};

}  // namespace ballast
