// Sixteen floats in as many vectors as the instruction set needs, so that results do not depend on it. Included once for each
// instruction set, hence the odd guard.

#if defined(BALLAST_QUANTIZE_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_QUANTIZE_LANES_INL_H
#undef BALLAST_QUANTIZE_LANES_INL_H
#else
#define BALLAST_QUANTIZE_LANES_INL_H
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "convert/kernels-inl.h"
#include "quantize/groups.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {

using LanesF = hn::RebindToFloat<Lanes32>;
using VectorF = hn::VFromD<LanesF>;
using MaskF = decltype(hn::Eq(VectorF(), VectorF()));

constexpr std::size_t kWide = 16;
constexpr std::size_t kPart = HWY_MIN(HWY_LANES(float), kWide);
constexpr std::size_t kParts = kWide / kPart;

struct Wide {
  VectorF part[kParts];  // NOLINT(modernize-avoid-c-arrays): vectors may not be template arguments
};
struct WideMask {
  MaskF part[kParts];  // NOLINT(modernize-avoid-c-arrays)
};

// NOLINTBEGIN(cppcoreguidelines-macro-usage): lambdas of vectors are slow with some compilers
#define BALLAST_WIDE_1(name, expression)                                 \
  HWY_INLINE Wide name(const Wide& a) {                                  \
    Wide out;                                                            \
    for (std::size_t i = 0; i < kParts; ++i) out.part[i] = (expression); \
    return out;                                                          \
  }
#define BALLAST_WIDE_2(name, type, expression)                           \
  HWY_INLINE type name(const Wide& a, const Wide& b) {                   \
    type out;                                                            \
    for (std::size_t i = 0; i < kParts; ++i) out.part[i] = (expression); \
    return out;                                                          \
  }
// NOLINTEND(cppcoreguidelines-macro-usage)

BALLAST_WIDE_1(magnitude, hn::Abs(a.part[i]))
BALLAST_WIDE_1(negative, hn::Neg(a.part[i]))
BALLAST_WIDE_1(rounded, hn::Round(a.part[i]))
BALLAST_WIDE_1(square_root, hn::Sqrt(a.part[i]))
BALLAST_WIDE_2(operator+, Wide, hn::Add(a.part[i], b.part[i]))
BALLAST_WIDE_2(operator-, Wide, hn::Sub(a.part[i], b.part[i]))
BALLAST_WIDE_2(operator*, Wide, hn::Mul(a.part[i], b.part[i]))
BALLAST_WIDE_2(operator/, Wide, hn::Div(a.part[i], b.part[i]))
BALLAST_WIDE_2(smaller, Wide, hn::Min(a.part[i], b.part[i]))
BALLAST_WIDE_2(larger, Wide, hn::Max(a.part[i], b.part[i]))
BALLAST_WIDE_2(operator<, WideMask, hn::Lt(a.part[i], b.part[i]))
BALLAST_WIDE_2(operator==, WideMask, hn::Eq(a.part[i], b.part[i]))
BALLAST_WIDE_2(with_sign_of, Wide, hn::CopySign(a.part[i], b.part[i]))
#undef BALLAST_WIDE_1
#undef BALLAST_WIDE_2

HWY_INLINE Wide choose(const WideMask& mask, const Wide& yes, const Wide& no) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = hn::IfThenElse(mask.part[i], yes.part[i], no.part[i]);
  return out;
}

HWY_INLINE WideMask operator&(const WideMask& a, const WideMask& b) {
  WideMask out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = hn::And(a.part[i], b.part[i]);
  return out;
}

HWY_INLINE Wide all(float value) {
  Wide out;
  for (VectorF& part : out.part) part = hn::Set(LanesF(), value);
  return out;
}

// Not every instruction set keeps the sign of a zero when it rounds, so stored values have none.
HWY_INLINE Wide without_sign_of_zero(const Wide& a) { return a + all(0); }

HWY_INLINE Wide load_wide(const float* values) {
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = hn::LoadU(LanesF(), values + i * kPart);
  return out;
}

HWY_INLINE void store_wide(const Wide& values, float* out) {
  for (std::size_t i = 0; i < kParts; ++i) hn::StoreU(values.part[i], LanesF(), out + i * kPart);
}

// The finite numbers; NaN and infinities are not.
HWY_INLINE WideMask is_finite(const Wide& a) {
  WideMask out;
  for (std::size_t i = 0; i < kParts; ++i) out.part[i] = hn::IsFinite(a.part[i]);
  return out;
}

HWY_INLINE bool all_true(const WideMask& mask) {
  bool result = true;
  for (const MaskF& part : mask.part) result = result && hn::AllTrue(LanesF(), part);
  return result;
}

// Halves the lanes until one is left.
HWY_INLINE float sum(const Wide& a) {
  alignas(64) std::array<float, kWide> lanes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  store_wide(a, lanes.data());
  for (std::size_t half = kWide / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Rounded to F32, F16 or BF16.
HWY_INLINE Wide snapped(const Wide& a, DType dtype) {
  if (dtype == DType::kF32) return a;
  const Lanes32 d;
  Wide out;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto bits = hn::BitCast(d, a.part[i]);
    out.part[i] = as_floats(dtype == DType::kBF16 ? decode_f32<DType::kBF16>(d, encode_f32<DType::kBF16>(d, bits))
                                                  : decode_f32<DType::kF16>(d, encode_f32<DType::kF16>(d, bits)));
  }
  return out;
}

struct Range {
  float low;
  float high;
};

HWY_INLINE Range range_of(const float* values, std::size_t count) {
  Wide low = load_wide(values);
  Wide high = low;
  for (std::size_t i = kWide; i < count; i += kWide) {
    const Wide next = load_wide(values + i);
    low = smaller(low, next);
    high = larger(high, next);
  }
  VectorF least = low.part[0];
  VectorF most = high.part[0];
  for (std::size_t i = 1; i < kParts; ++i) {
    least = hn::Min(least, low.part[i]);
    most = hn::Max(most, high.part[i]);
  }
  return {.low = hn::GetLane(hn::MinOfLanes(LanesF(), least)), .high = hn::GetLane(hn::MaxOfLanes(LanesF(), most))};
}

// The parameters of some groups, one a lane.
struct Parameters {
  Wide scale;
  Wide offset;
};

// Round to nearest as in MLX, in F32: the end of the range that is further from 0 is represented exactly. `steps` is the largest
// code.
HWY_INLINE Parameters mlx_parameters(const Wide& low, const Wide& high, float steps) {
  const WideMask low_is_further = magnitude(high) < magnitude(low);
  const Wide width = larger((high - low) / all(steps), all(1e-7F));
  const Wide scale = choose(low_is_further, width, negative(width));
  const Wide edge = choose(low_is_further, low, high);
  const Wide code = rounded(edge / scale);
  const WideMask is_zero = code == all(0);
  return {.scale = choose(is_zero, scale, edge / code), .offset = choose(is_zero, all(0), edge)};
}

// The same for a zero point, on a range that includes 0, so that the zero point is an integer. A constant group is exact.
HWY_INLINE Parameters zero_parameters(const Wide& low, const Wide& high, float steps) {
  const Parameters mlx = mlx_parameters(smaller(low, all(0)), larger(high, all(0)), steps);
  const Wide scale = snapped(mlx.scale, DType::kBF16);
  const Wide zero = without_sign_of_zero(snapped(rounded(negative(mlx.offset) / mlx.scale), DType::kBF16));
  const WideMask constant = (low == high) & (all(1e-7F) < magnitude(low));
  return {.scale = choose(constant, snapped(low, DType::kBF16), scale), .offset = choose(constant, all(0), zero)};
}

// At most 32 codes are stored at a time, because that is the smallest group.
using CodeLanes = hn::CappedTag<float, 8>;
using CodeVector = hn::VFromD<CodeLanes>;
constexpr std::size_t kCodesAtOnce = 4 * HWY_MIN(HWY_LANES(float), 8);

// Adding this to a number from 0 to 2^22 leaves the nearest integer in its lowest bits.
constexpr float kIntegerShift = 12582912.0F;

// Stores the integers that were shifted so, at most `steps`. None may be below 0 or past 2^16.
HWY_INLINE void store_codes_up_to(float steps, const CodeVector (&shifted)[4], std::uint8_t* out) {
  const hn::Repartition<std::uint16_t, CodeLanes> d16;
  const hn::Repartition<std::uint8_t, CodeLanes> d8;
  const auto most = hn::Set(d16, static_cast<std::uint16_t>(steps));
  const auto low = hn::Min(hn::ConcatEven(d16, hn::BitCast(d16, shifted[1]), hn::BitCast(d16, shifted[0])), most);
  const auto high = hn::Min(hn::ConcatEven(d16, hn::BitCast(d16, shifted[3]), hn::BitCast(d16, shifted[2])), most);
  hn::StoreU(hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low)), d8, out);
}

// A group's codes are those nearest to w * inverse + shift.
struct Coder {
  float inverse;
  float shift;
  float steps;
};

HWY_INLINE void store_group_codes(const float* values, std::size_t count, const Coder& coder, std::uint8_t* codes) {
  const CodeLanes d;
  CodeVector shifted[4];  // NOLINT(modernize-avoid-c-arrays)
  for (std::size_t i = 0; i < count; i += kCodesAtOnce) {
    for (std::size_t j = 0; j < 4; ++j) {
      const auto value = hn::LoadU(d, values + i + j * (kCodesAtOnce / 4));
      const auto code = hn::Add(hn::Mul(value, hn::Set(d, coder.inverse)), hn::Set(d, coder.shift));
      const auto clamped = hn::Min(hn::Max(code, hn::Zero(d)), hn::Set(d, coder.steps));
      shifted[j] = hn::Add(clamped, hn::Set(d, kIntegerShift));
    }
    store_codes_up_to(coder.steps, shifted, codes + i);
  }
}

HWY_INLINE Wide value_of(Affine affine, const Wide& code, const Wide& scale, const Wide& offset) {
  return affine == Affine::kScaleBias ? code * scale + offset : (code - offset) * scale;
}

// Prefetches a part of the next input with each group: all at once would exceed the processor's outstanding loads, and the
// hardware prefetcher stops at the page boundary.
HWY_INLINE void prefetch_next(const GroupRun& run, std::size_t group) {
  constexpr std::size_t kLine = 64;
  const std::size_t end = run.next.size() * (group + 1) / run.groups;
  for (std::size_t at = run.next.size() * group / run.groups; at < end; at += kLine)
    __builtin_prefetch(run.next.data() + at, 0, 3);
}

HWY_INLINE float steps_of(unsigned bits) { return static_cast<float>((1U << bits) - 1U); }

}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
