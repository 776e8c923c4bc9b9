#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/quantize_config.h>

#include "calibrate/statistics.h"
#include "calibrate/time_groups.h"
#include "quantize/hessian.h"

namespace ballast {

// Statistics of the inputs of one layer, prepared for quantizing it.
struct LayerInputs {
  std::vector<float> importance;               // of each column; empty without statistics
  std::optional<Feedback> feedback;            // if there is a Hessian
  std::optional<GroupStatistics> time_groups;  // if the layer is time-aware
};

// Input statistics of a model, and the decisions that follow from them for the whole model.
class Calibration {
 public:
  // Reads and checks everything but the Hessians. Model and config are borrowed. `renamed` is for a model whose tensors have
  // other names than those in the file.
  static Result<std::unique_ptr<Calibration>> open(const std::string& path, const Model& model, const Plan& plan,
                                                   const QuantizeConfig& config, Modality modality,
                                                   const Statistics::Renamed& renamed = {});

  const Statistics& statistics() const { return statistics_; }
  bool covers(std::size_t tensor) const;
  bool has_feedback(std::size_t tensor) const { return has_feedback_[tensor]; }
  bool has_ranges(std::size_t tensor) const { return has_ranges_[tensor]; }  // minimum and maximum of the inputs
  bool is_time_aware() const { return time_aware_; }
  bool is_spatial() const { return spatial_; }

  // Groups of timesteps. boundaries() are the first timesteps of all groups but the first. No groups if the model is not
  // time-aware.
  std::size_t groups() const { return time_aware_ ? starts_.size() : 0; }
  std::vector<double> boundaries() const;

  // Computed on first use. Thread-safe.
  Result<std::shared_ptr<const LayerInputs>> inputs(std::size_t tensor);
  // Keeps the result of inputs() if there is memory left, so that the Hessian is not factored again.
  void release(std::size_t tensor);
  // inputs() will not be called for it again.
  void drop(std::size_t tensor);
  // The bytes that release() may keep in total.
  void set_room(std::uint64_t bytes) { room_ = bytes; }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Calibration(Statistics statistics, const Model& model, const Plan& plan, const QuantizeConfig& config);

  Result<void> prepare(Modality modality);
  // Of the Hessians, `too_large` do not fit in the memory limit; with `limit_for_all` they all would.
  void warn_of_unused(bool has_hessian, std::size_t too_large, std::uint64_t limit_for_all);
  std::string_view name_of(std::size_t tensor) const { return model_.tensors()[tensor].name; }
  Result<LayerInputs> read(std::size_t tensor) const;

  Statistics statistics_;
  const Model& model_;
  std::vector<std::uint64_t> columns_;  // of each tensor; 0: left unquantized
  const QuantizeConfig& config_;
  bool time_aware_ = false;
  bool spatial_ = false;
  std::vector<std::size_t> starts_{0};
  std::vector<bool> has_feedback_;  // for each tensor
  std::vector<bool> has_ranges_;    // likewise
  std::vector<std::string> warnings_;
  std::mutex mutex_;
  std::map<std::size_t, std::shared_ptr<const LayerInputs>> inputs_;
  std::uint64_t room_ = 0;
  std::map<std::size_t, std::uint64_t> kept_;  // bytes of what was released and kept
};

}  // namespace ballast
