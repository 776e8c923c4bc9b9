#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct TimeAwareTable;  // internal: the parameters as stored in files

// The parameters of a layer for one group of timesteps. Borrows from the TimeAware it came from.
struct TimeParameters {
  std::size_t group = 0;
  std::span<const float> bias;  // to be added to the layer's outputs; one per output channel
  // 8-bit quantization of the layer's inputs, x ≈ (q - zero) · scale; empty if their range was not recorded.
  std::optional<float> activation_scale;
  std::optional<float> activation_zero;
};

// The parameters of a quantized model that depend on the timestep.
class TimeAware {
 public:
  TimeAware(TimeAware&&) noexcept;
  TimeAware& operator=(TimeAware&&) noexcept;
  ~TimeAware();

  std::span<const double> boundaries() const;  // first timestep of each group except the first
  std::size_t groups() const { return boundaries().size() + 1; }
  std::size_t group_of(double timestep) const;
  std::vector<std::string_view> layers() const;  // original names of the weights, sorted

  // Empty if the layer has no parameters that depend on the timestep.
  std::optional<TimeParameters> at(std::string_view layer, double timestep) const;

 private:
  friend TimeAware make_time_aware(TimeAwareTable table);
  struct State;
  explicit TimeAware(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ballast
