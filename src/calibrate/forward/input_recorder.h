#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>

#include "calibrate/forward/decoder_layer.h"
#include "calibrate/forward/linear.h"

namespace ballast {

// Adds up statistics of the inputs of linear layers, as a timecalib.v1 file has them. Of Hessians that do not fit in `most_bytes`
// together, some are left to another pass.
class InputRecorder {
 public:
  InputRecorder(const ParallelProducts& products, bool hessian, std::uint64_t most_bytes)
      : products_(products), hessian_(hessian), most_bytes_(most_bytes) {}

  // Weights that share their inputs are always given together. All of them get the statistics.
  void see(std::span<const std::string> weights, const LinearInputs& inputs);

  bool empty() const { return layers_.empty(); }
  std::size_t weights() const;
  // Whether some weights were left to another pass, which next() begins: without those that were recorded.
  bool has_more() const { return has_more_; }
  void next();
  // Writes a SafeTensors file.
  Result<void> save(const std::string& path, const Metadata& metadata) const;

 private:
  struct Inputs {
    std::vector<std::string> weights;
    std::uint64_t columns = 0;
    std::uint64_t tokens = 0;
    std::vector<double> sums;
    std::vector<double> squares;
    std::vector<float> lows;  // of each column
    std::vector<float> highs;
    std::vector<float> hessian;  // Σ importance · x·xᵀ, on the diagonal and below
    double importance = 0;       // Σ importance
  };
  void add_sums(Inputs& into, const float* inputs, std::uint64_t tokens) const;
  void add_hessian(Inputs& into, const LinearInputs& inputs);

  const ParallelProducts& products_;
  bool hessian_;
  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;  // of Hessians
  bool has_more_ = false;
  std::vector<float> scaled_;                          // inputs · √importance
  std::set<std::string, std::less<>> finished_;        // in earlier passes, by the first weight
  std::map<std::string, Inputs, std::less<>> layers_;  // likewise
};

}  // namespace ballast
