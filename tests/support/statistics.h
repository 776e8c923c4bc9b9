#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/model.h>

#include "calibrate/statistics.h"
#include "tests/support/tensors.h"

namespace ballast::test {

inline TensorText floats(std::string_view name, std::vector<std::uint64_t> shape, const std::vector<float>& values = {}) {
  return {name, DType::kF32, std::move(shape), raw(values)};
}

// The metadata of statistics by these timesteps, a JSON list, or of plain ones.
inline std::string statistics_metadata(std::string_view timesteps = {}) {
  if (timesteps.empty()) return R"({"format":"timecalib.v1"})";
  return fmt::format(R"({{"format":"timecalib.v1","timesteps":"{}"}})", timesteps);
}

// A file of statistics in memory, called s.
class StatisticsFile {
 public:
  explicit StatisticsFile(const std::vector<TensorText>& tensors, std::string_view timesteps = {}, unsigned most_timesteps = 128)
      : StatisticsFile(safetensors(tensors, statistics_metadata(timesteps)), most_timesteps) {}
  explicit StatisticsFile(std::string bytes, unsigned most_timesteps = 128)
      : bytes_(std::move(bytes)), statistics_(open(bytes_, most_timesteps)) {}

  const Result<Statistics>& result() const { return statistics_; }
  const Statistics* operator->() const { return &statistics_.value(); }

 private:
  static Result<Statistics> open(const std::string& bytes, unsigned most_timesteps) {
    auto file = Model::from_bytes(as_bytes(bytes), "s");
    if (!file) return std::unexpected(file.error());
    return Statistics::from_file(std::move(*file), most_timesteps);
  }

  std::string bytes_;
  Result<Statistics> statistics_;
};

}  // namespace ballast::test
