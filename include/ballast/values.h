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

// Statistics of the values of one tensor. min, max, mean, deviation, norm and histogram cover only the finite values, and are NaN
// if there are none. All are computed in double: 64-bit integers above 2^53 are rounded, and values above 1e154 may overflow.
struct TensorStats {
  std::uint64_t count = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;  // population standard deviation
  double l2_norm = 0;
  std::array<std::uint64_t, 16> histogram{};  // equal bins from min to max

  std::uint64_t finite() const { return count - nans - infinities; }
  bool constant() const { return finite() == count && count > 1 && min == max; }
};

struct StatsOptions {
  bool histogram = true;  // needs a second pass over the data
  WorkOptions work;
};

// Returns one entry per name; it is empty for F6 tensors, which have no standard packing. A complex value counts as two. Reads
// blocks of 4 MiB per thread. The results do not depend on the number of threads.
Result<std::vector<std::optional<TensorStats>>> compute_stats(const Model& model, std::span<const std::string_view> names,
                                                              const StatsOptions& options = {});

// Limits beyond which values are reported. The last three apply only to weights, that is, to float tensors of two or more
// dimensions, because biases and norms are often legitimately constant.
struct ValueLimits {
  bool allow_nan = false;
  bool allow_infinity = false;
  bool allow_constant = false;     // all values equal, for example all 0
  double max_zero_share = 0.9999;  // 1: no limit
  double min_l2_norm = 1e-9;       // 0: no limit
};

// Returns one line per problem with a tensor's values; empty if there is none.
std::vector<std::string> check_values(const TensorInfo& tensor, const TensorStats& stats, const ValueLimits& limits = {});

}  // namespace ballast
