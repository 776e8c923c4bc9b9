#include "calibrate/time_bias.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include <ballast/convert.h>

namespace ballast {
namespace {

// Transposes [groups, columns] to [columns, groups], as doubles, so that all groups are summed at once.
std::vector<double> transposed(std::span<const float> values, std::size_t groups) {
  const std::size_t columns = values.size() / groups;
  std::vector<double> out(values.size());
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t i = 0; i < columns; ++i) out[i * groups + group] = static_cast<double>(values[group * columns + i]);
  }
  return out;
}

}  // namespace

void make_time_bias(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const CodedRows& coded,
                    const GroupStatistics& groups, std::span<float> out) {
  const std::size_t count = groups.counts.size();
  const std::vector<double> means = transposed(groups.means, count);
  const std::vector<double> variances = transposed(groups.variances, count);
  const std::uint64_t row_bytes = format.columns * bits(dtype) / 8;
  const std::uint64_t row_count = rows.size() / row_bytes;
  std::vector<float> before(format.columns);
  std::vector<float> after(format.columns);
  std::vector<double> shifts(count);  // e·m
  std::vector<double> doubts(count);  // the variance of e·m, were there one input
  for (std::uint64_t row = 0; row < row_count; ++row) {
    const auto converted =
        convert_values(dtype, rows.subspan(row * row_bytes, row_bytes), DType::kF32, std::as_writable_bytes(std::span(before)));
    assert(converted);
    dequantize_rows(format, coded.packed.subspan(row * format.packed_bytes(), format.packed_bytes()),
                    coded.scales.subspan(row * format.groups(), format.groups()),
                    coded.offsets.subspan(row * format.groups(), format.groups()), after);
    std::ranges::fill(shifts, 0);
    std::ranges::fill(doubts, 0);
    for (std::size_t i = 0; i < format.columns; ++i) {
      const double error = static_cast<double>(after[i]) - static_cast<double>(before[i]);
      for (std::size_t group = 0; group < count; ++group) {
        shifts[group] += error * means[i * count + group];
        doubts[group] += error * error * variances[i * count + group];
      }
    }
    for (std::size_t group = 0; group < count; ++group) {
      // The variance of the mean of n inputs is their variance / n, which is the observed one / (n - 1). That much of the square
      // of a shift is chance, and a bias would add as much again.
      const double chance = doubts[group] / (groups.counts[group] - 1);
      const bool pays = groups.counts[group] > 1 && shifts[group] * shifts[group] > 2 * chance;
      out[group * row_count + row] = pays ? static_cast<float>(-shifts[group]) : 0.0F;
    }
  }
}

ActivationScales activation_scales(const GroupStatistics& groups) {
  constexpr float kSteps = 255;
  ActivationScales made;
  for (std::size_t i = 0; i < groups.lows.size(); ++i) {
    const float low = std::min(groups.lows[i], 0.0F);
    const float high = std::max(groups.highs[i], 0.0F);
    const float scale = high / kSteps - low / kSteps;  // high - low may overflow
    made.scales.push_back(scale > 0 ? scale : 1.0F);
    made.zeros.push_back(std::round(-low / made.scales.back()));
  }
  return made;
}

}  // namespace ballast
