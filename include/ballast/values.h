#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/work.h>

namespace ballast {

// Figures over the values of one tensor. min, max, mean, deviation, norm and histogram are over the finite ones, NaN where there
// are none. All are computed in double, so 64-bit integers past 2^53 are rounded, and values past 1e154 may overflow the sums.
struct TensorStats {
  std::uint64_t count = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;  // standard, of the population
  double l2_norm = 0;
  std::array<std::uint64_t, 16> histogram{};  // equal bins from min to max

  std::uint64_t finite() const { return count - nans - infinities; }
  bool constant() const { return finite() == count && count > 1 && min == max; }
};

struct StatsOptions {
  bool histogram = true;  // costs a second pass over the data
  WorkOptions work;
};

// One entry per name, empty for F6 tensors, whose packing nobody has agreed on. Complex values count as two. Reads in
// blocks, 4 MiB per thread; the figures do not depend on the thread count.
Result<std::vector<std::optional<TensorStats>>> compute_stats(const Model& model, std::span<const std::string_view> names,
                                                              const StatsOptions& options = {});

// What makes values suspect. The last three hold for weights: floating tensors of two or more dimensions, since biases and norms
// are often constant for a good reason.
struct ValueLimits {
  bool allow_nan = false;
  bool allow_infinity = false;
  bool allow_constant = false;     // every value the same, such as 0
  double max_zero_share = 0.9999;  // 1: any share
  double min_l2_norm = 1e-9;       // 0: any norm
};

// What is wrong with a tensor's values, one line each; nothing if nothing is.
std::vector<std::string> check_values(const TensorInfo& tensor, const TensorStats& stats, const ValueLimits& limits = {});

}  // namespace ballast
