#include "calibrate/time_groups.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace ballast {
namespace {

constexpr std::size_t kMostRuns = 1024;
constexpr std::size_t kColumnsAtOnce = 64;  // whose means stay in the cache

// Where run `i` of `runs` begins.
std::size_t run_start(std::size_t i, std::size_t runs, std::size_t timesteps) { return i * timesteps / runs; }

// For every column and run: the run's weight times the distance of its mean from that of all timesteps, normalized by the
// column's mean square and the number of columns.
class Deviations {
 public:
  Deviations(const LayerStatistics& layer, std::size_t runs) : layer_(layer), runs_(runs), values_(kColumnsAtOnce * runs) {}

  // Loads up to kColumnsAtOnce columns from `first` on, and returns how many.
  std::size_t load(std::size_t first) {
    const std::size_t count = std::min<std::size_t>(kColumnsAtOnce, layer_.columns - first);
    for (std::size_t i = 0; i < count; ++i) load_column(first + i, values_.data() + i * runs_);
    return count;
  }

  const double* column(std::size_t i) const { return values_.data() + i * runs_; }  // counted from the first taken; by run
  double energy() const { return energy_; }                                         // of all columns so far

 private:
  void load_column(std::size_t j, double* out) {
    // Below this, squares have lost precision.
    constexpr double kDead = std::numeric_limits<float>::min();
    double mean = 0;
    double square = 0;
    for (std::size_t t = 0; t < layer_.timesteps(); ++t) {
      mean += layer_.weights[t] * mean_at(t, j);
      square += layer_.weights[t] * static_cast<double>(layer_.squares[t * layer_.columns + j]);
    }
    std::fill_n(out, runs_, 0.0);
    if (square < kDead) return;
    const auto columns = static_cast<double>(layer_.columns);
    const double scale = 1 / std::sqrt(square * columns);
    energy_ += 1 / columns;
    for (std::size_t run = 0; run < runs_; ++run) {
      const std::size_t end = run_start(run + 1, runs_, layer_.timesteps());
      for (std::size_t t = run_start(run, runs_, layer_.timesteps()); t < end; ++t) {
        out[run] += layer_.weights[t] * scale * (mean_at(t, j) - mean);
      }
    }
  }

  double mean_at(std::size_t t, std::size_t j) const { return static_cast<double>(layer_.means[t * layer_.columns + j]); }

  const LayerStatistics& layer_;
  std::size_t runs_;
  std::vector<double> values_;
  double energy_ = 0;
};

double sum(std::span<const double> values, std::size_t begin, std::size_t end) {
  const auto part = values.subspan(begin, end - begin);
  return std::accumulate(part.begin(), part.end(), 0.0);
}

std::vector<double> run_weights(const LayerStatistics& layer, std::size_t runs) {
  std::vector<double> weights(runs);
  for (std::size_t run = 0; run < runs; ++run) {
    weights[run] = sum(layer.weights, run_start(run, runs, layer.timesteps()), run_start(run + 1, runs, layer.timesteps()));
  }
  return weights;
}

// The timesteps from `begin` to `end`, pooled into group `group`.
void pool(const LayerStatistics& layer, std::size_t begin, std::size_t end, std::size_t group, GroupStatistics& out) {
  const double weight = sum(layer.weights, begin, end);
  for (std::size_t j = 0; j < layer.columns; ++j) {
    double mean = 0;
    double square = 0;
    for (std::size_t t = begin; t < end; ++t) {
      mean += layer.weights[t] / weight * static_cast<double>(layer.means[t * layer.columns + j]);
      square += layer.weights[t] / weight * static_cast<double>(layer.squares[t * layer.columns + j]);
    }
    out.means[group * layer.columns + j] = static_cast<float>(mean);
    out.variances[group * layer.columns + j] = static_cast<float>(std::max(square - mean * mean, 0.0));
  }
  if (layer.lows.empty()) return;
  out.lows[group] = std::numeric_limits<float>::infinity();
  out.highs[group] = -std::numeric_limits<float>::infinity();
  for (std::size_t t = begin; t < end; ++t) {
    if (layer.counts[t] == 0) continue;
    out.lows[group] = std::min(out.lows[group], layer.lows[t]);
    out.highs[group] = std::max(out.highs[group], layer.highs[t]);
  }
}

}  // namespace

void TimeGroups::add(const LayerStatistics& layer) {
  if (timesteps_ == 0) {
    timesteps_ = layer.timesteps();
    runs_ = std::min(timesteps_, kMostRuns);
    costs_.assign(runs_ * runs_, 0.0);
  }
  assert(timesteps_ == layer.timesteps());

  // The products of all pairs of deviations, from the diagonal on. Columns are added in order, on every processor.
  std::vector<double> products(runs_ * runs_);
  Deviations deviations(layer, runs_);
  for (std::size_t first = 0; first < layer.columns; first += kColumnsAtOnce) {
    const std::size_t count = deviations.load(first);
    for (std::size_t a = 0; a < runs_; ++a) {
      double* const row = products.data() + a * runs_;
      for (std::size_t i = 0; i < count; ++i) {
        const double* const column = deviations.column(i);
        for (std::size_t b = a; b < runs_; ++b) row[b] += column[a] * column[b];
      }
    }
  }
  energy_ += deviations.energy();
  add_costs(products, run_weights(layer, runs_));
}

// With the deviation d of each run times its weight w, a group costs sum(d²/w) - sum(d)²/sum(w). It is summed from the products
// within the group alone: differences of larger sums would cancel the small cost of a light group.
void TimeGroups::add_costs(std::span<const double> products, std::span<const double> weights) {
  std::vector<double> later(runs_);  // of each run with those after it, up to `last`
  for (std::size_t last = 0; last < runs_; ++last) {
    double own = 0;
    double square = 0;
    double weight = 0;
    for (std::size_t first = last + 1; first-- > 0;) {
      const double* const row = products.data() + first * runs_;
      if (first < last) later[first] += row[last];
      if (weights[first] > 0) own += row[first] / weights[first];
      square += row[first] + 2 * later[first];
      weight += weights[first];
      if (weight > 0) costs_[last * runs_ + first] += std::max(own - square / weight, 0.0);
    }
  }
}

std::vector<std::size_t> TimeGroups::cut(unsigned most) const {
  constexpr double kWorthwhile = 1e-6;
  if (runs_ == 0) return {0};

  // Dynamic programming. best[last] is the least cost of the runs up to `last` in starts.size() groups; `starts` has the first
  // run of the last group.
  std::vector<double> best(runs_);
  for (std::size_t last = 0; last < runs_; ++last) best[last] = costs_[last * runs_];
  std::vector<std::vector<std::size_t>> starts(1, std::vector<std::size_t>(runs_));
  while (starts.size() < std::min<std::size_t>(most, runs_)) {
    const std::size_t groups = starts.size();
    std::vector<double> next(best);
    std::vector<std::size_t> next_starts(runs_);
    for (std::size_t last = groups; last < runs_; ++last) {
      const double* const costs = costs_.data() + last * runs_;
      next[last] = std::numeric_limits<double>::infinity();
      for (std::size_t first = groups; first <= last; ++first) {
        const double cost = best[first - 1] + costs[first];
        if (cost >= next[last]) continue;
        next[last] = cost;
        next_starts[last] = first;
      }
    }
    if (best.back() - next.back() <= kWorthwhile * energy_) break;
    best = std::move(next);
    starts.push_back(std::move(next_starts));
  }

  std::vector<std::size_t> cuts(starts.size());
  std::size_t last = runs_ - 1;
  for (std::size_t group = starts.size(); group-- > 1;) {
    const std::size_t first = starts[group][last];
    cuts[group] = run_start(first, runs_, timesteps_);
    last = first - 1;
  }
  return cuts;
}

GroupStatistics group_means(const LayerStatistics& layer, std::span<const std::size_t> starts) {
  const bool has_range = !layer.lows.empty();
  GroupStatistics groups{.means = std::vector<float>(starts.size() * layer.columns),
                         .variances = std::vector<float>(starts.size() * layer.columns),
                         .weights = std::vector<double>(starts.size()),
                         .counts = std::vector<double>(starts.size()),
                         .lows = std::vector<float>(has_range ? starts.size() : 0),
                         .highs = std::vector<float>(has_range ? starts.size() : 0)};
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t begin = starts[i];
    const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : layer.timesteps();
    groups.weights[i] = sum(layer.weights, begin, end);
    groups.counts[i] = sum(layer.counts, begin, end);
    if (groups.weights[i] > 0) {
      pool(layer, begin, end, i, groups);
    } else {
      pool(layer, 0, layer.timesteps(), i, groups);
    }
  }
  return groups;
}

}  // namespace ballast
