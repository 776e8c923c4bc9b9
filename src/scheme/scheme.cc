#include "scheme/scheme.h"

#include <array>

namespace ballast {

std::span<const Scheme* const> all_schemes() {
  static const std::array<const Scheme*, 2> schemes{&mlx_scheme(), &parquet_scheme()};
  return schemes;
}

}  // namespace ballast
