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

// What is known of the inputs of one layer while it is quantized.
struct LayerInputs {
  std::vector<float> importance;               // of each column; empty if nothing is known
  std::optional<Feedback> feedback;            // if there is a Hessian
  std::optional<GroupStatistics> time_groups;  // if the layer is to be time-aware
};

// Statistics of a model's inputs, and what follows from them for the whole model.
class Calibration {
 public:
  // Reads and checks everything but the Hessians. Model and config are borrowed.
  static Result<std::unique_ptr<Calibration>> open(const std::string& path, const Model& model, const Plan& plan,
                                                   const QuantizeConfig& config, Modality modality);

  const Statistics& statistics() const { return statistics_; }
  bool covers(std::size_t tensor) const;
  bool has_feedback(std::size_t tensor) const { return has_feedback_[tensor]; }
  bool has_ranges(std::size_t tensor) const { return has_ranges_[tensor]; }  // the least and the largest input are told
  bool is_time_aware() const { return time_aware_; }
  bool is_spatial() const { return spatial_; }

  // Groups of timesteps, of which the first begins with the first timestep, and the others here. None if the model is not to be
  // time-aware.
  std::size_t groups() const { return time_aware_ ? starts_.size() : 0; }
  std::vector<double> boundaries() const;

  // Made when it is first asked for. Thread-safe.
  Result<std::shared_ptr<const LayerInputs>> inputs(std::size_t tensor);
  // Keeps what inputs() made if memory for that is left, so that a Hessian need not be factored again.
  void release(std::size_t tensor);
  // Will not be asked for any more.
  void drop(std::size_t tensor);
  // What release() may keep in all, in bytes.
  void set_room(std::uint64_t bytes) { room_ = bytes; }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Calibration(Statistics statistics, const Model& model, const Plan& plan, const QuantizeConfig& config);

  Result<void> prepare(Modality modality);
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
