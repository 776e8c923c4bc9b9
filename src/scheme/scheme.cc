#include "scheme/scheme.h"

#include <algorithm>
#include <array>

namespace ballast {

const Scheme* find_scheme(std::string_view name) {
  const std::array schemes{&mlx_scheme(), &parquet_scheme()};
  const auto found = std::ranges::find(schemes, name, &Scheme::name);
  return found == schemes.end() ? nullptr : *found;
}

}  // namespace ballast
