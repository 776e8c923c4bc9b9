#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct TimeAwareTable;  // internal: what files hold

// What a layer has for one group of timesteps. Borrows from the TimeAware it came from.
struct TimeParameters {
  std::size_t group = 0;
  std::span<const float> bias;  // to be added to the layer's outputs, one for each
  // Of 8 bits for the layer's inputs, x ≈ (q - zero) · scale, where their range is known.
  std::optional<float> activation_scale;
  std::optional<float> activation_zero;
};

// The parameters of a quantized model that go by timestep.
class TimeAware {
 public:
  TimeAware(TimeAware&&) noexcept;
  TimeAware& operator=(TimeAware&&) noexcept;
  ~TimeAware();

  std::span<const double> boundaries() const;  // the timesteps at which groups begin, without the first group
  std::size_t groups() const { return boundaries().size() + 1; }
  std::size_t group_of(double timestep) const;
  std::vector<std::string_view> layers() const;  // the names that their weights had before, sorted

  // Nothing for a layer that has no such parameters.
  std::optional<TimeParameters> at(std::string_view layer, double timestep) const;

 private:
  friend TimeAware make_time_aware(TimeAwareTable table);
  struct State;
  explicit TimeAware(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ballast
