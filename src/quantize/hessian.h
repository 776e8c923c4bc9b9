#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// A symmetric matrix or a triangular one. Below the diagonal the rows lie one behind the other, row k with k values.
struct Triangle {
  std::vector<float> below;
  std::vector<float> diagonal;

  explicit Triangle(std::uint64_t size) : below(size * (size - 1) / 2), diagonal(size) {}
  float* row(std::uint64_t index) { return below.data() + index * (index - 1) / 2; }
  const float* row(std::uint64_t index) const { return below.data() + index * (index - 1) / 2; }
};

// How the error of one column of weights is made good by those after it. H = XᵀX of the inputs X of a layer, or its mean over
// them, is U D Uᵀ with U upper triangular, ones on its diagonal, and D diagonal. So an error e of a row of weights, which costs
// e H eᵀ, costs the sum of D_k (e U)_k².
//
// H is divided by the mean of its diagonal. Then each value on the diagonal is raised by `damping`, 2 % or more, times its square
// root, the geometric mean of it and the mean of all: inputs that correlate by chance count for less. A little more is added so
// that inputs that are always 0 give pivots above 0.
class Feedback {
 public:
  static constexpr double kLeastDamping = 0.02;

  // Reads whole rows of H, one after the other. Called from one thread, with a bounded number of rows.
  using ReadRows = std::function<Result<void>(std::uint64_t first_row, std::span<float> rows)>;

  // Fails on what is no such matrix, and on zeros, of which nothing is learnt. There is a column at least. The result depends on
  // neither `threads` (0: one per core) nor the processor.
  static Result<Feedback> make(std::uint64_t columns, const ReadRows& read, unsigned threads, double damping = kLeastDamping);

  // What one takes at most while it is made, and nearly all of it afterwards.
  static std::uint64_t bytes(std::uint64_t columns);

  std::span<const float> damping() const { return damping_; }  // what was added to the diagonal, whose mean was 1 before
  std::uint64_t columns() const { return factors_.diagonal.size(); }
  // The values of U above the diagonal in a column, as many as there are columns before it.
  const float* weights(std::uint64_t column) const { return factors_.row(column); }
  // D, one for each column, all of them above 0.
  std::span<const float> pivots() const { return factors_.diagonal; }

 private:
  Feedback(Triangle factors, std::vector<float> damping) : factors_(std::move(factors)), damping_(std::move(damping)) {}

  Triangle factors_;  // Uᵀ below the diagonal, D on it
  std::vector<float> damping_;
};

}  // namespace ballast
