#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/model.h>

namespace ballast {

inline constexpr std::string_view kStatisticsFormat = "timecalib.v1";

// Statistics of a weight's inputs x and outputs y, each in a tensor <weight>.<name>.
enum class Statistic : std::uint8_t { kMean, kSquareMean, kMin, kMax, kOutputSquareMean, kCount, kHessian };
inline constexpr std::array<std::string_view, 7> kStatisticNames{"x_mean",   "x_sqmean", "x_min",  "x_max",
                                                                 "y_sqmean", "count",    "hessian"};

constexpr bool is_per_column(Statistic statistic) { return statistic == Statistic::kMean || statistic == Statistic::kSquareMean; }
constexpr std::string_view name(Statistic statistic) { return kStatisticNames[static_cast<std::size_t>(statistic)]; }

// The tensors of one weight, with consistent shapes. Borrows from the file.
struct WeightStatistics {
  std::uint64_t columns = 0;
  std::array<const TensorInfo*, kStatisticNames.size()> tensors{};  // null if not recorded

  const TensorInfo*& operator[](Statistic statistic) { return tensors[static_cast<std::size_t>(statistic)]; }
  const TensorInfo* operator[](Statistic statistic) const { return tensors[static_cast<std::size_t>(statistic)]; }
};

struct StatisticsTable {
  std::vector<double> timesteps;  // in the order of the file, distinct; may be empty
  std::map<std::string, WeightStatistics, std::less<>> weights;
};

// Checks names, dtypes, shapes and metadata; reads no values.
Result<StatisticsTable> read_statistics_table(const Model& file);

}  // namespace ballast
