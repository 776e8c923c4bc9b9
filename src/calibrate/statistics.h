#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/model.h>

#include "calibrate/imatrix.h"
#include "calibrate/layer_statistics.h"
#include "calibrate/statistics_table.h"
#include "plan/layer_plan.h"

namespace ballast {

// Which of the quantized layers have statistics.
struct Coverage {
  std::size_t covered = 0;
  std::size_t quantized = 0;
  std::vector<std::string> uncovered;
};

// Statistics of the inputs of a model's layers, per timestep or not, from a SafeTensors file, or from an importance matrix of
// llama.cpp: see docs/formats/timecalib.md. Const members are thread-safe.
class Statistics {
 public:
  // Checks names, shapes and metadata; values are read later. Of more than `most_timesteps`, that many are used, evenly spread
  // from the first to the last.
  static Result<Statistics> open(const std::string& path, unsigned most_timesteps);
  static Result<Statistics> from_file(Model file, unsigned most_timesteps);
  // `imatrix.names` says what the model may call the weights.
  static Result<Statistics> from_imatrix(Imatrix imatrix, const std::string& path);

  const Model& file() const { return file_; }
  std::span<const std::string> weights() const { return names_; }  // sorted
  bool has(std::string_view weight) const { return find(weight) != nullptr && !left_out_.contains(weight); }
  // Weights that had inputs, but at none of the timesteps that are used.
  const std::set<std::string, std::less<>>& left_out() const { return left_out_; }
  bool has_hessian(std::string_view weight) const;
  bool has_means(std::string_view weight) const;
  std::uint64_t columns(std::string_view weight) const;  // 0 for a weight that is not there

  const std::vector<double>& timesteps() const { return used_.times; }  // used, ascending; empty if not recorded
  std::size_t recorded_timesteps() const { return table_.timesteps.size(); }

  // Needs 8 bytes for each column and used timestep.
  Result<LayerStatistics> read(std::string_view weight) const;
  // Copies whole rows from `first_row` on, to fill `rows`.
  Result<void> read_hessian(std::string_view weight, std::uint64_t first_row, std::span<float> rows) const;

  // Names of tensors, and of those that a model has in their place: none if they are stacked or left out.
  using Renamed = std::map<std::string, std::vector<std::string>, std::less<>>;
  // Moves statistics to the new names. Returns the weights whose statistics are dropped, because there is no new name.
  std::vector<std::string> rename(const Renamed& renamed);

  // Gives each weight of an importance matrix the name that the model has for it, or that `renamed` knows.
  void use_names_of(const Model& model, const Renamed& renamed);

  // Checks that every weight is a tensor of the model and has as many columns. `plans` are the model's.
  Result<void> check_fits(const Model& model, std::span<const LayerPlan> plans) const;
  Coverage coverage(const Model& model, std::span<const LayerPlan> plans) const;

 private:
  Statistics(Model file, StatisticsTable table, unsigned most_timesteps);
  Result<void> find_left_out();
  const WeightStatistics* find(std::string_view weight) const;

  std::vector<Tensor> tensors_;  // of an importance matrix; `file_` borrows them
  std::map<std::string, std::vector<std::string>, std::less<>> possible_names_;
  Model file_;
  StatisticsTable table_;
  std::vector<std::string> names_;
  UsedTimesteps used_;
  std::set<std::string, std::less<>> left_out_;
};

}  // namespace ballast
