#include "calibrate/forward/kernels.h"

#include <cmath>
#include <limits>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "calibrate/forward/kernels.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                            // first
#include <hwy/highway.h>
// after it
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;
using Vector = hn::VFromD<Lanes>;

// Calls whole(at) for each full vector and rest(at) for each value that remains.
template <class Whole, class Rest>
HWY_INLINE void each(std::size_t count, Whole&& whole, Rest&& rest) {
  const std::size_t lanes = hn::Lanes(Lanes());
  std::size_t at = 0;
  for (; at + lanes <= count; at += lanes) whole(at);
  for (; at < count; ++at) rest(at);
}

void rms_norm(std::span<const float> in, const float* weight, float epsilon, float* out) {
  const Lanes d;
  Vector squares = hn::Zero(d);
  float rest = 0;
  each(
      in.size(),
      [&](std::size_t at) {
        const Vector value = hn::LoadU(d, in.data() + at);
        squares = hn::MulAdd(value, value, squares);
      },
      [&](std::size_t at) { rest += in[at] * in[at]; });
  const float sum = hn::GetLane(hn::SumOfLanes(d, squares)) + rest;
  const float factor = 1.0F / std::sqrt(sum / static_cast<float>(in.size()) + epsilon);
  each(
      in.size(),
      [&](std::size_t at) {
        const Vector scaled = hn::Mul(hn::LoadU(d, in.data() + at), hn::Set(d, factor));
        hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + at)), d, out + at);
      },
      [&](std::size_t at) { out[at] = in[at] * factor * weight[at]; });
}

HWY_INLINE float largest(std::span<const float> values) {
  const Lanes d;
  Vector most = hn::Set(d, -std::numeric_limits<float>::infinity());
  float rest = -std::numeric_limits<float>::infinity();
  each(
      values.size(), [&](std::size_t at) { most = hn::Max(most, hn::LoadU(d, values.data() + at)); },
      [&](std::size_t at) { rest = values[at] > rest ? values[at] : rest; });
  const float whole = hn::GetLane(hn::MaxOfLanes(d, most));
  return whole > rest ? whole : rest;
}

void softmax(std::span<float> row) {
  const Lanes d;
  const float most = largest(row);
  Vector sums = hn::Zero(d);
  float rest = 0;
  each(
      row.size(),
      [&](std::size_t at) {
        const Vector value = hn::Exp(d, hn::Sub(hn::LoadU(d, row.data() + at), hn::Set(d, most)));
        hn::StoreU(value, d, row.data() + at);
        sums = hn::Add(sums, value);
      },
      [&](std::size_t at) {
        row[at] = std::exp(row[at] - most);
        rest += row[at];
      });
  const float factor = 1.0F / (hn::GetLane(hn::SumOfLanes(d, sums)) + rest);
  each(
      row.size(),
      [&](std::size_t at) { hn::StoreU(hn::Mul(hn::LoadU(d, row.data() + at), hn::Set(d, factor)), d, row.data() + at); },
      [&](std::size_t at) { row[at] *= factor; });
}

// Highway's Exp() is defined up to 104. What is divided by exp(80) is as good as 0.
HWY_INLINE Vector exp_within(const Vector& value) {
  const Lanes d;
  return hn::Exp(d, hn::Min(value, hn::Set(d, 80.0F)));
}

void multiply_silu(std::span<float> gate, const float* up) {
  const Lanes d;
  each(
      gate.size(),
      [&](std::size_t at) {
        const Vector value = hn::LoadU(d, gate.data() + at);
        const Vector divisor = hn::Add(hn::Set(d, 1.0F), exp_within(hn::Neg(value)));
        hn::StoreU(hn::Mul(hn::Div(value, divisor), hn::LoadU(d, up + at)), d, gate.data() + at);
      },
      [&](std::size_t at) { gate[at] = gate[at] / (1.0F + std::exp(-gate[at])) * up[at]; });
}

// 2 / (1 + exp(−2t)) is 1 + tanh(t).
void multiply_gelu_tanh(std::span<float> gate, const float* up) {
  constexpr float kRoot = 0.7978845608028654F;  // √(2/π)
  constexpr float kCubic = 0.044715F;
  const Lanes d;
  each(
      gate.size(),
      [&](std::size_t at) {
        const Vector value = hn::LoadU(d, gate.data() + at);
        const Vector cubed = hn::Mul(hn::Mul(value, value), value);
        const Vector angle = hn::Mul(hn::Set(d, -2 * kRoot), hn::MulAdd(hn::Set(d, kCubic), cubed, value));
        const Vector share = hn::Div(value, hn::Add(hn::Set(d, 1.0F), exp_within(angle)));
        hn::StoreU(hn::Mul(share, hn::LoadU(d, up + at)), d, gate.data() + at);
      },
      [&](std::size_t at) {
        const float value = gate[at];
        gate[at] = value / (1.0F + std::exp(-2 * kRoot * (value + kCubic * value * value * value))) * up[at];
      });
}

void add_scaled(std::span<float> sums, const float* values, float factor) {
  const Lanes d;
  each(
      sums.size(),
      [&](std::size_t at) {
        const Vector sum = hn::MulAdd(hn::LoadU(d, values + at), hn::Set(d, factor), hn::LoadU(d, sums.data() + at));
        hn::StoreU(sum, d, sums.data() + at);
      },
      [&](std::size_t at) { sums[at] += values[at] * factor; });
}

bool all_finite(std::span<const float> values) {
  const Lanes d;
  Vector zeros = hn::Zero(d);  // 0 times infinity or NaN is NaN
  float rest = 0;
  each(
      values.size(), [&](std::size_t at) { zeros = hn::MulAdd(hn::LoadU(d, values.data() + at), hn::Zero(d), zeros); },
      [&](std::size_t at) { rest += values[at] * 0.0F; });
  return hn::GetLane(hn::SumOfLanes(d, zeros)) + rest == 0.0F;
}

// Moves the sums to the largest of the logits so far.
HWY_INLINE void raise(std::span<const float> logits, std::uint32_t index, LogitSums& sums) {
  const float most = largest(logits);
  if (index != 0 && most <= sums.most) return;
  std::uint32_t first = 0;
  while (first + 1 < logits.size() && logits[first] != most) ++first;
  if (index != 0) {
    const double factor = std::exp(static_cast<double>(sums.most) - most);
    sums.exponentials *= factor;
    sums.gaps *= factor;
  }
  sums.most = most;
  sums.first = index + first;
}

template <bool kCompares>
HWY_INLINE void add_all(std::span<const float> logits, const float* others, std::uint32_t index, LogitSums& sums) {
  const Lanes d;
  raise(logits, index, sums);
  Vector exponentials = hn::Zero(d);
  Vector gaps = hn::Zero(d);
  float rest = 0;
  float rest_gaps = 0;
  each(
      logits.size(),
      [&](std::size_t at) {
        const Vector logit = hn::LoadU(d, logits.data() + at);
        const Vector value = hn::Exp(d, hn::Sub(logit, hn::Set(d, sums.most)));
        exponentials = hn::Add(exponentials, value);
        if constexpr (kCompares) gaps = hn::MulAdd(value, hn::Sub(logit, hn::LoadU(d, others + at)), gaps);
      },
      [&](std::size_t at) {
        const float value = std::exp(logits[at] - sums.most);
        rest += value;
        if constexpr (kCompares) rest_gaps += value * (logits[at] - others[at]);
      });
  sums.exponentials += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, exponentials))) + rest;
  sums.gaps += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, gaps))) + rest_gaps;
}

void add_logits_alone(std::span<const float> logits, std::uint32_t index, LogitSums& sums) {
  add_all<false>(logits, nullptr, index, sums);
}
void add_logits_compared(std::span<const float> logits, const float* others, std::uint32_t index, LogitSums& sums) {
  add_all<true>(logits, others, index, sums);
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(rms_norm);
HWY_EXPORT(softmax);
HWY_EXPORT(multiply_silu);
HWY_EXPORT(multiply_gelu_tanh);
HWY_EXPORT(add_scaled);
HWY_EXPORT(all_finite);
HWY_EXPORT(add_logits_alone);
HWY_EXPORT(add_logits_compared);

void rms_norm(std::span<const float> in, const float* weight, float epsilon, float* out) {
  HWY_DYNAMIC_DISPATCH(rms_norm)(in, weight, epsilon, out);
}
void softmax(std::span<float> row) { HWY_DYNAMIC_DISPATCH(softmax)(row); }
void multiply_silu(std::span<float> gate, const float* up) { HWY_DYNAMIC_DISPATCH(multiply_silu)(gate, up); }
void multiply_gelu_tanh(std::span<float> gate, const float* up) { HWY_DYNAMIC_DISPATCH(multiply_gelu_tanh)(gate, up); }
void add_scaled(std::span<float> sums, const float* values, float factor) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(sums, values, factor);
}
bool all_finite(std::span<const float> values) { return HWY_DYNAMIC_DISPATCH(all_finite)(values); }
void add_logits(std::span<const float> logits, std::uint32_t index, LogitSums& sums) {
  HWY_DYNAMIC_DISPATCH(add_logits_alone)(logits, index, sums);
}
void add_logits(std::span<const float> logits, const float* others, std::uint32_t index, LogitSums& sums) {
  HWY_DYNAMIC_DISPATCH(add_logits_compared)(logits, others, index, sums);
}

double LogitSums::log_sum() const { return static_cast<double>(most) + std::log(exponentials); }

}  // namespace ballast
#endif
