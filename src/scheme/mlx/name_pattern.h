#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// The texts of `*` in a name that matches a pattern, and the number of `#`. The texts point into the name.
struct MlxMatch {
  std::vector<std::string_view> texts;
  std::optional<std::uint64_t> number;
};
std::optional<MlxMatch> match_mlx_name(std::string_view pattern, std::string_view name);
std::string fill_mlx_name(std::string_view pattern, const MlxMatch& match);

}  // namespace ballast
