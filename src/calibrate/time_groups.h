#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/layer_statistics.h"

namespace ballast {

// Cuts the timesteps into groups, the same for all layers, in which the means of the inputs stay about the same.
//
// The cost of a group is how far its timesteps' means are from their common mean, squared and weighted as the timesteps are. Each
// column is measured by its mean square, so that each layer counts alike. More than 1024 timesteps are taken in runs of equal
// length, which are not cut: costs are kept for each pair.
class TimeGroups {
 public:
  // All layers have the same timesteps.
  void add(const LayerStatistics& layer);

  // The first timestep of each group, 0 first. There are at most `most` groups, and no more than pay: the next would lower the
  // cost by less than a millionth of the inputs' mean square.
  std::vector<std::size_t> cut(unsigned most) const;

 private:
  void add_costs(std::span<const double> products, std::span<const double> weights);

  std::size_t timesteps_ = 0;
  std::size_t runs_ = 0;       // that timesteps are taken in, mostly of one each
  std::vector<double> costs_;  // of the group from one run to another, both included: [last, first]
  double energy_ = 0;
};

// The inputs of one layer in each group of timesteps. Where a group has seen none, they are those of all timesteps.
struct GroupStatistics {
  std::vector<float> means;      // of each column: [groups, columns]
  std::vector<float> variances;  // likewise
  std::vector<double> weights;   // of each group, 1 in all
  std::vector<double> counts;    // of inputs
  std::vector<float> lows;       // the least input, empty if it is not told
  std::vector<float> highs;
};

// `starts` is the first timestep of each group, as cut() gives them. Timesteps weigh as they do in the layer.
GroupStatistics group_means(const LayerStatistics& layer, std::span<const std::size_t> starts);

}  // namespace ballast
