#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>

#include "calibrate/forward/blas.h"

namespace ballast {

// Where a matrix is stored: rows of a tensor, which may hold several matrices, one after the other.
struct MatrixPlace {
  std::string tensor;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::vector<std::uint64_t> shape;  // of the whole tensor
};

// A linear layer: outputs = inputs · weightᵀ + bias.
struct Linear {
  MatrixPlace place;  // of the weight in the model
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // empty if there is none
};

// Reads the weights of a model as F32. NaN and infinite values are errors. Thread-safe.
class LinearReader {
 public:
  LinearReader(const Model& model, unsigned threads) : model_(model), threads_(threads) {}

  bool has(const std::string& tensor) const { return model_.has(tensor); }
  // `module`.weight of [out, in], and `module`.bias if the model has it.
  Result<Linear> linear(const std::string& module, std::uint64_t out, std::uint64_t in) const;
  Result<Linear> linear(const MatrixPlace& place) const;
  Result<std::vector<float>> vector(const std::string& tensor, std::uint64_t size) const;
  // Rows of a matrix, into `out`.
  Result<void> read(const MatrixPlace& place, std::span<float> out) const;

  const Model& model() const { return model_; }

 private:
  const Model& model_;
  unsigned threads_;
};

// Runs matrix products on several threads.
struct ParallelProducts {
  const Blas& blas;
  unsigned threads;

  // outputs[tokens, out] from inputs[tokens, in]
  void run(const Linear& linear, const float* inputs, std::uint64_t tokens, float* outputs) const;
};

}  // namespace ballast
