#include "quantize/products.h"

#include <algorithm>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/products.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                    // first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
using Vector = hn::VFromD<Lanes>;
constexpr std::size_t kLanes = HWY_MIN(HWY_LANES(float), 16);

// A part of the product: terms from `begin` to `end`, columns from `x` on.
struct Part {
  std::size_t begin;
  std::size_t end;
  std::size_t x;
};

// Rows and vectors of sums that stay in registers over all terms.
template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void add_tile(const Products& products, std::size_t row, const Part& part) {
  const Lanes d;
  const float* left[kRows];      // NOLINT(modernize-avoid-c-arrays)
  Vector sums[kRows][kVectors];  // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t r = 0; r < kRows; ++r) {
    left[r] = products.left[row + r];
    for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::LoadU(d, products.sums[row + r] + part.x + v * kLanes);
  }
  const float* right = products.right + part.begin * products.right_stride + part.x;
  for (std::size_t i = part.begin; i < part.end; ++i, right += products.right_stride) {
    Vector factors[kVectors];  // NOLINT(modernize-avoid-c-arrays)
    for (std::size_t v = 0; v < kVectors; ++v) factors[v] = hn::LoadU(d, right + v * kLanes);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector factor = hn::Set(d, left[r][i]);
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Add(sums[r][v], hn::Mul(factor, factors[v]));
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, products.sums[row + r] + part.x + v * kLanes);
  }
}

template <std::size_t kVectors>
HWY_INLINE void add_columns(const Products& products, const Part& part) {
  constexpr std::size_t kRows = 4;
  std::size_t row = 0;
  for (; row + kRows <= products.sums.size(); row += kRows) add_tile<kRows, kVectors>(products, row, part);
  for (; row < products.sums.size(); ++row) add_tile<1, kVectors>(products, row, part);
}

void add_one_by_one(const Products& products, const Part& part) {
  for (std::size_t row = 0; row < products.sums.size(); ++row) {
    for (std::size_t x = part.x; x < products.width; ++x) {
      float sum = products.sums[row][x];
      for (std::size_t i = part.begin; i < part.end; ++i) {
        sum += products.left[row][i] * products.right[i * products.right_stride + x];
      }
      products.sums[row][x] = sum;
    }
  }
}

void add_products(const Products& products) {
  constexpr std::size_t kTerms = 256;                               // at once, so that the right matrix stays in the cache
  constexpr std::size_t kVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;  // as many as there are registers for
  Part part{};
  for (; part.begin < products.terms; part.begin = part.end) {
    part.end = std::min(part.begin + kTerms, products.terms);
    part.x = 0;
    for (; part.x + kVectors * kLanes <= products.width; part.x += kVectors * kLanes) add_columns<kVectors>(products, part);
    for (; part.x + kLanes <= products.width; part.x += kLanes) add_columns<1>(products, part);
    add_one_by_one(products, part);
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(add_products);
void add_products(const Products& products) { HWY_DYNAMIC_DISPATCH(add_products)(products); }
}  // namespace ballast
#endif
