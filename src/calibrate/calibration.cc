#include "calibrate/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

// The fewer inputs there were for each column, the less their correlations mean.
double damping_of(const LayerStatistics& layer) {
  if (layer.inputs == 0) return Feedback::kLeastDamping;
  return std::max(Feedback::kLeastDamping, 0.75 * std::pow(static_cast<double>(layer.columns) / layer.inputs, 1.5));
}

}  // namespace

Result<std::unique_ptr<Calibration>> Calibration::open(const std::string& path, const Model& model, const Plan& plan,
                                                       const QuantizeConfig& config, Modality modality,
                                                       const Statistics::Renamed& renamed) {
  auto statistics = TRY(Statistics::open(path, config.calibration_samples));
  statistics.use_names_of(model, renamed);
  const std::vector<std::string> dropped = statistics.rename(renamed);
  TRY(statistics.check_fits(model, plan.layers()));
  std::unique_ptr<Calibration> calibration(new Calibration(std::move(statistics), model, plan, config));
  if (!dropped.empty()) {
    calibration->warnings_.push_back(fmt::format(
        "the statistics of {} of the model's tensors are not used, because the output has them stacked or not at all: {}{}",
        dropped.size(), quote(dropped.front()), dropped.size() > 1 ? ", ..." : ""));
  }
  TRY(calibration->prepare(modality));
  return calibration;
}

Calibration::Calibration(Statistics statistics, const Model& model, const Plan& plan, const QuantizeConfig& config)
    : statistics_(std::move(statistics)), model_(model), config_(config) {
  for (const LayerPlan& layer : plan.layers()) columns_.push_back(layer.is_quantized() ? layer.columns : 0);
}

bool Calibration::covers(std::size_t tensor) const { return columns_[tensor] != 0 && statistics_.has(name_of(tensor)); }

Result<void> Calibration::prepare(Modality modality) {
  const bool has_times = !statistics_.timesteps().empty();
  time_aware_ = config_.enable_time_aware.value_or(has_times && (modality == Modality::kText || modality == Modality::kCode));
  spatial_ = config_.enable_spatial.value_or(modality == Modality::kImage || modality == Modality::kAudio);
  has_feedback_.assign(columns_.size(), false);
  has_ranges_.assign(columns_.size(), false);
  TimeGroups groups;
  std::size_t covered = 0;
  bool has_hessian = false;
  std::size_t too_large = 0;
  std::uint64_t limit_for_all = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!covers(i)) continue;
    ++covered;
    has_hessian |= statistics_.has_hessian(name_of(i));
    const auto layer = statistics_.read(name_of(i));
    if (!layer) return std::unexpected(layer.error());
    if (time_aware_ && !statistics_.has_means(name_of(i))) {
      return fail(Errc::kInvalidArgument,
                  "{}: enable_time_aware needs the means of the inputs, but there are none for {}; leave it out",
                  escape(statistics_.file().path()), quote(name_of(i)));
    }
    if (time_aware_) groups.add(*layer);
    has_ranges_[i] = !layer->lows.empty();

    // Without inputs, as in experts that got no tokens, there is nothing to learn.
    const bool has_inputs = std::ranges::any_of(layer->squares, [](float square) { return square > 0; });
    if (!is_search(config_.method) || config_.type != QuantizeType::kInt || !statistics_.has_hessian(name_of(i)) || !has_inputs)
      continue;
    // The next layer's may be computed while this one is in use, and half of the memory is for other things.
    const std::uint64_t needed = (4 * Feedback::bytes(columns_[i]) >> 20) + 1;
    has_feedback_[i] = needed <= config_.max_memory_limit >> 20;
    if (has_feedback_[i]) continue;
    ++too_large;
    limit_for_all = std::max(limit_for_all, needed);
  }
  if (const auto& left_out = statistics_.left_out(); !left_out.empty()) {
    warnings_.push_back(
        fmt::format("{} of the weights, such as {}, had no inputs at the {} timesteps that are used; raise calibration_samples",
                    left_out.size(), quote(*left_out.begin()), statistics_.timesteps().size()));
  }
  if (covered == 0) warnings_.emplace_back("the statistics cover none of the quantized layers");
  warn_of_unused(has_hessian, too_large, limit_for_all);
  if (time_aware_ && has_times) starts_ = groups.cut(config_.num_time_groups);
  return {};
}

void Calibration::warn_of_unused(bool has_hessian, std::size_t too_large, std::uint64_t limit_for_all) {
  if (config_.method == QuantizeMethod::kRtn && !time_aware_) warnings_.emplace_back("method rtn does not use statistics");
  if (config_.method == QuantizeMethod::kHqq && has_hessian) warnings_.emplace_back("method hqq does not use Hessians");
  if (config_.type != QuantizeType::kInt && has_hessian) {
    warnings_.push_back(fmt::format("type {} does not use Hessians, but the mean squares of the inputs", name(config_.type)));
  }
  if (config_.enable_time_aware.value_or(false) && statistics_.timesteps().empty()) {
    warnings_.push_back(fmt::format("the statistics have no timesteps: 1 time group instead of {}", config_.num_time_groups));
  }
  if (too_large > 0) {
    warnings_.push_back(fmt::format("{} of the Hessians {} not used, because max_memory_limit_mb is {}; set it to {} to use all",
                                    too_large, too_large == 1 ? "is" : "are", config_.max_memory_limit >> 20, limit_for_all));
  }
}

std::vector<double> Calibration::boundaries() const {
  std::vector<double> boundaries;
  for (const std::size_t start : std::span(starts_).subspan(1)) boundaries.push_back(statistics_.timesteps()[start]);
  return boundaries;
}

Result<LayerInputs> Calibration::read(std::size_t tensor) const {
  LayerInputs inputs;
  if (!covers(tensor)) return inputs;
  auto layer = TRY(statistics_.read(name_of(tensor)));
  if (time_aware_) inputs.time_groups = group_means(layer, starts_);
  const double damping = damping_of(layer);
  inputs.importance = std::move(layer.importance);
  if (!has_feedback(tensor)) return inputs;
  bool was_read = true;
  const auto read_rows = [&](std::uint64_t first, std::span<float> rows) {
    auto done = statistics_.read_hessian(name_of(tensor), first, rows);
    was_read &= done.has_value();
    return done;
  };
  auto feedback = Feedback::make(columns_[tensor], read_rows, config_.num_threads, damping);
  if (!feedback && !was_read) return std::unexpected(std::move(feedback.error()));  // already names the place
  if (!feedback) {
    return fail_at(escape(statistics_.file().path()),
                   std::move(feedback.error()).at(fmt::format("the Hessian of tensor {}", quote(name_of(tensor)))));
  }
  inputs.feedback = std::move(*feedback);
  return inputs;
}

Result<std::shared_ptr<const LayerInputs>> Calibration::inputs(std::size_t tensor) {
  const std::scoped_lock lock(mutex_);  // other threads wait, so factoring can use all cores
  if (const auto found = inputs_.find(tensor); found != inputs_.end()) return found->second;
  auto made = TRY(read(tensor));
  return inputs_.emplace(tensor, std::make_shared<const LayerInputs>(std::move(made))).first->second;
}

void Calibration::release(std::size_t tensor) {
  const std::scoped_lock lock(mutex_);
  const auto found = inputs_.find(tensor);
  if (found == inputs_.end() || kept_.contains(tensor)) return;
  const std::uint64_t bytes = found->second->feedback ? Feedback::bytes(columns_[tensor]) : 0;
  if (bytes == 0 || bytes > room_) {
    inputs_.erase(found);
    return;
  }
  room_ -= bytes;
  kept_.emplace(tensor, bytes);
}

void Calibration::drop(std::size_t tensor) {
  const std::scoped_lock lock(mutex_);
  inputs_.erase(tensor);
  if (const auto kept = kept_.extract(tensor)) room_ += kept.mapped();
}

}  // namespace ballast
