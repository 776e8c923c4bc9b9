#include "scheme/scheme.h"

#include <algorithm>
#include <array>

namespace ballast {

std::span<const Scheme* const> all_schemes() {
  static const std::array<const Scheme*, 2> kSchemes{&mlx_scheme(), &parquet_scheme()};
  return kSchemes;
}

const WritableScheme* find_writable_scheme(std::string_view name) {
  const auto found = std::ranges::find(all_schemes(), name, &Scheme::name);
  return found == all_schemes().end() ? nullptr : dynamic_cast<const WritableScheme*>(*found);
}

}  // namespace ballast
