#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/model.h>

#include "calibrate/statistics_table.h"

namespace ballast {

// The timesteps of a file that are made use of, in ascending order.
struct UsedTimesteps {
  std::vector<double> times;      // empty if the statistics do not go by timestep
  std::vector<std::size_t> rows;  // where each is in the file; 0 alone if they do not
};

// What is known of one weight's inputs. Those that do not go by timestep are as of a single one.
struct LayerStatistics {
  std::uint64_t columns = 0;
  std::vector<float>
      importance;  // of each column: its mean square over all timesteps, by the mean of these, at least 1e-4 of the usual
  std::vector<float> means;     // of each column at each timestep: [timesteps, columns]
  std::vector<float> squares;   // the means of the squares, likewise
  std::vector<double> weights;  // of each timestep, 1 in all: counts, by the mean square of the outputs if that is told
  std::vector<double> counts;   // of inputs at each timestep, 1 each if they are not told
  double inputs = 0;            // at all timesteps, used or not; 0 if they are not told
  std::vector<float> lows;      // the least input at each timestep, empty if it is not told
  std::vector<float> highs;

  std::size_t timesteps() const { return weights.size(); }
};

// Reads and checks all values but the Hessian's. NaN, infinity and what no inputs can have are kCorrupt.
Result<LayerStatistics> read_layer_statistics(const Model& file, const WeightStatistics& found, const UsedTimesteps& used);

// Counts by energies, 1 in all. A timestep whose energy is 0 is taken to have the least of the others.
std::vector<double> timestep_weights(std::span<const double> counts, std::span<const float> energies);

// LayerStatistics::importance, from its squares and weights.
std::vector<float> column_importance(const LayerStatistics& layer);

}  // namespace ballast
