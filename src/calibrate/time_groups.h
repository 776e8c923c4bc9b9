#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/layer_statistics.h"

namespace ballast {

// Divides the timesteps into groups, the same for all layers, in which the means of the inputs stay about the same.
//
// The cost of a group is the weighted squared distance of its timesteps' means from their common mean. Each column is normalized
// by its mean square, so that all layers count the same. More than 1024 timesteps are first joined into runs of equal length,
// because costs are stored for each pair.
class TimeGroups {
 public:
  // All layers have the same timesteps.
  void add(const LayerStatistics& layer);

  // The first timestep of each group, starting with 0. At most `most` groups, and fewer if another would lower the cost by less
  // than a millionth of the inputs' mean square.
  std::vector<std::size_t> cut(unsigned most) const;

 private:
  void add_costs(std::span<const double> products, std::span<const double> weights);

  std::size_t timesteps_ = 0;
  std::size_t runs_ = 0;       // of timesteps, usually of one each
  std::vector<double> costs_;  // of the group from one run to another, both included: [last, first]
  double energy_ = 0;
};

// Statistics of one layer's inputs in each group of timesteps. A group without inputs has those of all timesteps.
struct GroupStatistics {
  std::vector<float> means;      // of each column: [groups, columns]
  std::vector<float> variances;  // likewise
  std::vector<double> weights;   // of each group, sum 1
  std::vector<double> counts;    // of inputs
  std::vector<float> lows;       // the minimum, empty if not recorded
  std::vector<float> highs;
};

// `starts` is the result of cut(). Timesteps have the layer's weights.
GroupStatistics group_means(const LayerStatistics& layer, std::span<const std::size_t> starts);

}  // namespace ballast
