#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// The time-aware parameters of a quantized model, read from either format and checked.
struct TimeAwareTable {
  struct Layer {
    std::uint64_t rows = 0;
    std::vector<float> bias;       // [groups, rows]
    std::vector<float> act_scale;  // one for each group, or none
    std::vector<float> act_zero;
  };
  std::vector<double> boundaries;  // where groups begin, without the first
  std::map<std::string, Layer, std::less<>> layers;

  std::size_t groups() const { return boundaries.size() + 1; }

  Result<void> set_boundaries(std::string_view json);
  // One kind of a layer's parameters: time_bias, act_scale or act_zero.
  Result<void> add(std::string_view layer, std::uint64_t rows, std::string_view kind, std::vector<float> values);
  // The parameters of some rows of a layer, as stored in Parquet.
  Result<void> add_json(std::string_view layer, std::uint64_t rows, std::uint64_t first, std::uint64_t count,
                        std::string_view json);
  // Checks completeness, after everything is added.
  Result<void> check() const;
};

// The numbers of a list in an object of JSON, all finite.
Result<void> read_floats(std::string_view json, std::string_view key, std::vector<float>& out);

}  // namespace ballast
