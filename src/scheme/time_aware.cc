#include "scheme/time_aware.h"

#include <algorithm>

#include "base/try.h"
namespace ballast {

struct TimeAware::State {
  TimeAwareTable table;
};

TimeAware::TimeAware(std::unique_ptr<State> state) : state_(std::move(state)) {}
TimeAware::TimeAware(TimeAware&&) noexcept = default;
TimeAware& TimeAware::operator=(TimeAware&&) noexcept = default;
TimeAware::~TimeAware() = default;

std::span<const double> TimeAware::boundaries() const { return state_->table.boundaries; }

std::size_t TimeAware::group_of(double timestep) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(boundaries(), timestep) - boundaries().begin());
}

std::vector<std::string_view> TimeAware::layers() const {
  std::vector<std::string_view> names;
  for (const auto& [name, layer] : state_->table.layers) names.push_back(name);
  return names;
}

std::optional<TimeParameters> TimeAware::at(std::string_view layer, double timestep) const {
  const auto found = state_->table.layers.find(layer);
  if (found == state_->table.layers.end()) return std::nullopt;
  const TimeAwareTable::Layer& own = found->second;
  TimeParameters parameters{.group = group_of(timestep), .bias = {}, .activation_scale = {}, .activation_zero = {}};
  if (!own.bias.empty()) parameters.bias = std::span(own.bias).subspan(parameters.group * own.rows, own.rows);
  if (!own.act_scale.empty()) parameters.activation_scale = own.act_scale[parameters.group];
  if (!own.act_zero.empty()) parameters.activation_zero = own.act_zero[parameters.group];
  return parameters;
}

TimeAware make_time_aware(TimeAwareTable table) { return TimeAware(std::make_unique<TimeAware::State>(std::move(table))); }

}  // namespace ballast
