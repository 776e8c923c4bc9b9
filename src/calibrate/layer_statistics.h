#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ballast/model.h>

#include "calibrate/statistics_table.h"

namespace ballast {

// The timesteps of a file that are used, in ascending order.
struct UsedTimesteps {
  std::vector<double> times;      // empty if the statistics have no timesteps
  std::vector<std::size_t> rows;  // their indices in the file; only 0 without timesteps
};

// Statistics of one weight's inputs. Without timesteps, everything belongs to a single one.
struct LayerStatistics {
  std::uint64_t columns = 0;
  std::vector<float> importance;  // of each column: its mean square over all timesteps, divided by the mean of these; at least
                                  // 1e-4 of the typical
  std::vector<float> means;       // of each column at each timestep: [timesteps, columns]; empty if not recorded
  std::vector<float> squares;     // mean squares, likewise; always there
  std::vector<double> weights;    // of each timestep, sum 1: counts, divided by the mean square of the outputs if recorded
  std::vector<double> counts;     // of inputs at each timestep, 1 each if not recorded
  double inputs = 0;              // at all timesteps, used or not; 0 if not recorded
  std::vector<float> lows;        // the minimum at each timestep, empty if not recorded
  std::vector<float> highs;

  std::size_t timesteps() const { return weights.size(); }
};

// Reads and checks all values but the Hessian's. NaN, infinities and contradictions are kCorrupt.
Result<LayerStatistics> read_layer_statistics(const Model& file, const WeightStatistics& found, const UsedTimesteps& used);

// Counts divided by energies, scaled to sum 1. An energy of 0 is replaced by the smallest of the others.
std::vector<double> timestep_weights(std::span<const double> counts, std::span<const float> energies);

// LayerStatistics::importance, from its squares and weights.
std::vector<float> column_importance(const LayerStatistics& layer);

}  // namespace ballast
