#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "convert/kernels.h"
#include "quantize/gptq_tile.h"
#include "quantize/products.h"

namespace ballast {
namespace {

constexpr std::size_t kTermsAtOnce = 256;

// One value of each row for each column of a group, and room for rows of the same.
struct RefineBuffers {
  std::vector<Lanes> gradient{kLargestGroup};  // half the derivative of the error by e
  std::vector<Lanes> change{kLargestGroup};    // of e, since the gaps were computed
  std::vector<Lanes> direction{kLargestGroup};
  std::vector<Lanes> curved{kLargestGroup};  // direction · H
  std::vector<Lanes> right{kTermsAtOnce};
  std::vector<float> left = std::vector<float>(kLargestGroup * kTermsAtOnce);
  std::array<float, kLargestGroup> flat{};  // H times the factors of the columns
};

// Rounds to the dtype in which parameters are stored; zeros get no sign.
void snap(DType dtype, Lanes& values) {
  if (dtype != DType::kF32) {
    std::array<std::byte, kTileRows * 2> stored{};
    auto* const bytes = reinterpret_cast<std::byte*>(values.data());
    from_f32(dtype, bytes, kTileRows, stored.data(), Stores::kOrdinary);
    to_f32(dtype, stored.data(), kTileRows, bytes, Stores::kOrdinary);
  }
  for (float& value : values) value += 0.0F;
}

// Refines the groups of one tile.
class Refiner {
 public:
  Refiner(const RowFormat& format, const Feedback& feedback, Tile& tile) : format_(format), feedback_(feedback), tile_(tile) {}

  template <Affine kAffine>
  void refine(const Span& span) {
    columns_ = span;
    parameters_ = &tile_.groups[span.group];
    compute_gradient();
    for (std::size_t i = 0; i < columns_.count; ++i) buffers_.change[i].fill(0);
    if (format_.group_size <= kLargestGroup) fit_parameters<kAffine>();  // else other spans share them
    choose_codes<kAffine>();
    pass_on();
  }

 private:
  // The rows of H of the group, in its own columns.
  std::span<const float* const> near() {
    for (std::size_t i = 0; i < columns_.count; ++i) {
      near_[i] = feedback_.near(columns_.first + i) + columns_.first % Feedback::kNear;
    }
    return std::span(near_).first(columns_.count);
  }
  std::span<float* const> rows_of(std::vector<Lanes>& lanes) {
    for (std::size_t i = 0; i < columns_.count; ++i) rows_[i] = lanes[i].data();
    return std::span(rows_).first(columns_.count);
  }
  float unit(std::size_t i) const { return unit_of(format_, columns_.first + i); }

  // Σ over k ≥ j of U_jk D_k (e U)_k for each column j of the group.
  void compute_gradient() {
    for (std::size_t i = 0; i < columns_.count; ++i) buffers_.gradient[i].fill(0);
    for (std::uint64_t begin = columns_.first; begin < format_.columns; begin += kTermsAtOnce) {
      const std::size_t terms = std::min<std::uint64_t>(kTermsAtOnce, format_.columns - begin);
      std::array<const float*, kLargestGroup> left{};
      for (std::size_t i = 0; i < columns_.count; ++i) left[i] = buffers_.left.data() + i * kTermsAtOnce;
      for (std::size_t t = 0; t < terms; ++t) {
        const std::uint64_t k = begin + t;
        const float* const weights = feedback_.weights(k) + columns_.first;
        const std::size_t before = std::min<std::uint64_t>(k - columns_.first, columns_.count);
        for (std::size_t i = 0; i < columns_.count; ++i) {
          buffers_.left[i * kTermsAtOnce + t] = i < before ? weights[i] : (columns_.first + i == k ? 1.0F : 0.0F);
        }
        for (std::size_t row = 0; row < kTileRows; ++row) {
          buffers_.right[t][row] = feedback_.pivots()[k] * tile_.gaps[k][row];
        }
      }
      add_products({.left = std::span(left).first(columns_.count),
                    .right = buffers_.right.front().data(),
                    .right_stride = kTileRows,
                    .terms = terms,
                    .sums = rows_of(buffers_.gradient),
                    .width = kTileRows});
    }
  }

  // The error of a group as a function of its scale and bias: its slope and its curvature in these.
  struct Curve {
    alignas(64) Lanes scale_slope{};
    alignas(64) Lanes bias_slope{};
    alignas(64) Lanes scale_curvature{};
    alignas(64) Lanes mixed_curvature{};
    float bias_curvature = 0;
  };

  // The scale and the offset with the least error for the codes as they are.
  template <Affine kAffine>
  void fit_parameters() {
    const Curve curve = curve_of_codes();
    const GroupLanes before = *parameters_;
    const GroupLanes fitted = least_error<kAffine>(curve);
    Lanes scale_steps{};
    Lanes bias_steps{};
    for (std::size_t row = 0; row < kTileRows; ++row) {
      const float scale = fitted.scales[row];
      const float step = scale - before.scales[row];
      const float shift =
          bias_of<kAffine>(scale, fitted.offsets[row]) - bias_of<kAffine>(before.scales[row], before.offsets[row]);
      const float gained = 2 * (step * curve.scale_slope[row] + shift * curve.bias_slope[row]) -
                           step * step * curve.scale_curvature[row] - 2 * step * shift * curve.mixed_curvature[row] -
                           shift * shift * curve.bias_curvature;
      const bool is_usable =
          gained > 0 && std::isfinite(gained) && std::isfinite(1 / scale) && std::isfinite(fitted.offsets[row]);
      if (!is_usable) continue;
      scale_steps[row] = step;
      bias_steps[row] = shift;
      parameters_->scales[row] = scale;
      parameters_->offsets[row] = fitted.offsets[row];
    }
    follow_parameters<kAffine>(before, scale_steps, bias_steps);
  }

  Curve curve_of_codes() {
    Curve curve;
    const auto rows = near();
    for (std::size_t i = 0; i < columns_.count; ++i) {
      buffers_.curved[i].fill(0);
      for (std::size_t row = 0; row < kTileRows; ++row) {
        buffers_.direction[i][row] = static_cast<float>(tile_.codes[columns_.first + i][row]) * unit(i);
      }
      float flat = 0;
      for (std::size_t j = 0; j < columns_.count; ++j) flat += rows[i][j] * unit(j);
      buffers_.flat[i] = flat;
      curve.bias_curvature += flat * unit(i);
    }
    add_products({.left = rows,
                  .right = buffers_.direction.front().data(),
                  .right_stride = kTileRows,
                  .terms = columns_.count,
                  .sums = rows_of(buffers_.curved),
                  .width = kTileRows});
    for (std::size_t i = 0; i < columns_.count; ++i) {
      const Lanes& gradient = buffers_.gradient[i];
      const Lanes& direction = buffers_.direction[i];
      const Lanes& curved = buffers_.curved[i];
      const float factor = unit(i);
      for (std::size_t row = 0; row < kTileRows; ++row) {
        curve.scale_slope[row] += direction[row] * gradient[row];
        curve.bias_slope[row] += factor * gradient[row];
        curve.scale_curvature[row] += direction[row] * curved[row];
        curve.mixed_curvature[row] += factor * curved[row];
      }
    }
    return curve;
  }

  // Where the curve has its minimum, as it would be stored. Not finite where there is none.
  template <Affine kAffine>
  GroupLanes least_error(const Curve& curve) const {
    if (has_whole_zero(format_.affine)) return least_error_of_scales(curve);
    GroupLanes fitted;
    for (std::size_t row = 0; row < kTileRows; ++row) {
      const float determinant =
          curve.scale_curvature[row] * curve.bias_curvature - curve.mixed_curvature[row] * curve.mixed_curvature[row];
      const float step =
          (curve.bias_curvature * curve.scale_slope[row] - curve.mixed_curvature[row] * curve.bias_slope[row]) / determinant;
      const float shift =
          (curve.scale_curvature[row] * curve.bias_slope[row] - curve.mixed_curvature[row] * curve.scale_slope[row]) /
          determinant;
      const float scale = parameters_->scales[row] + step;
      const float bias = bias_of<kAffine>(parameters_->scales[row], parameters_->offsets[row]) + shift;
      fitted.scales[row] = scale;
      fitted.offsets[row] = kAffine == Affine::kScaleBias ? bias : -bias / scale;
    }
    snap(format_.parameters, fitted.scales);
    snap(format_.parameters, fitted.offsets);
    return fitted;
  }

  // The same while the zero points stay, so that the bias is a multiple of the scale.
  GroupLanes least_error_of_scales(const Curve& curve) const {
    GroupLanes fitted{.scales = {}, .offsets = parameters_->offsets};
    for (std::size_t row = 0; row < kTileRows; ++row) {
      const float zero = parameters_->offsets[row];
      const float slope = curve.scale_slope[row] - zero * curve.bias_slope[row];
      const float curvature =
          curve.scale_curvature[row] - 2 * zero * curve.mixed_curvature[row] + zero * zero * curve.bias_curvature;
      const float scale = parameters_->scales[row] + slope / curvature;
      fitted.scales[row] = scale > 0 ? scale : parameters_->scales[row];
    }
    snap(format_.parameters, fitted.scales);
    return fitted;
  }

  // Brings the errors and the gradient up to date with new parameters.
  template <Affine kAffine>
  void follow_parameters(const GroupLanes& before, const Lanes& scale_steps, const Lanes& bias_steps) {
    for (std::size_t i = 0; i < columns_.count; ++i) {
      Lanes& errors = tile_.errors[columns_.first + i];
      const CodeLanes& codes = tile_.codes[columns_.first + i];
      const float factor = unit(i);
      for (std::size_t row = 0; row < kTileRows; ++row) {
        const auto code = static_cast<float>(codes[row]);
        const float old = value_of_code<kAffine>(code, before.scales[row], before.offsets[row]) * factor;
        const float now = value_of_code<kAffine>(code, parameters_->scales[row], parameters_->offsets[row]) * factor;
        const float change = old - now;
        errors[row] += change;
        buffers_.change[i][row] += change;
        buffers_.gradient[i][row] -= scale_steps[row] * buffers_.curved[i][row] + bias_steps[row] * buffers_.flat[i];
      }
    }
  }

  // The best code of each column, one after the other.
  template <Affine kAffine>
  void choose_codes() {
    const auto rows = near();
    const auto steps = static_cast<float>((1U << format_.bits) - 1U);
    alignas(64) Lanes inverses{};
    alignas(64) Lanes shifts{};
    for (std::size_t row = 0; row < kTileRows; ++row) {
      inverses[row] = 1.0F / parameters_->scales[row];
      shifts[row] = kAffine == Affine::kScaleBias ? -parameters_->offsets[row] * inverses[row] : parameters_->offsets[row];
    }
    for (std::size_t i = 0; i < columns_.count; ++i) {
      Lanes& gradient = buffers_.gradient[i];
      float* const sums = gradient.data();
      const float* const left = rows[i];
      add_products({.left = std::span(&left, 1),
                    .right = buffers_.direction.front().data(),
                    .right_stride = kTileRows,
                    .terms = i,
                    .sums = std::span(&sums, 1),
                    .width = kTileRows});
      Lanes& errors = tile_.errors[columns_.first + i];
      CodeLanes& codes = tile_.codes[columns_.first + i];
      const float factor = unit(i);
      const float inverse_unit = 1.0F / factor;  // of a power of two
      const float inverse_curvature = 1.0F / rows[i][i];
      for (std::size_t row = 0; row < kTileRows; ++row) {
        const auto code = static_cast<float>(codes[row]);
        const float scale = parameters_->scales[row];
        const float offset = parameters_->offsets[row];
        const float value = value_of_code<kAffine>(code, scale, offset) * factor;
        const float wanted = value + gradient[row] * inverse_curvature;
        const float best = nearest_code(wanted * inverse_unit * inverses[row] + shifts[row], steps);
        const float change = value - value_of_code<kAffine>(best, scale, offset) * factor;
        codes[row] = static_cast<std::uint8_t>(best);
        errors[row] += change;
        buffers_.change[i][row] += change;
        buffers_.direction[i][row] = change;  // of this sweep alone
      }
    }
  }

  // Adds the changes to the gaps of all columns.
  void pass_on() {
    for (std::size_t i = 0; i < columns_.count; ++i) {
      Lanes& gaps = tile_.gaps[columns_.first + i];
      float* const sums = gaps.data();
      const float* const weights = feedback_.weights(columns_.first + i) + columns_.first;
      for (std::size_t row = 0; row < kTileRows; ++row) gaps[row] += buffers_.change[i][row];
      add_products({.left = std::span(&weights, 1),
                    .right = buffers_.change.front().data(),
                    .right_stride = kTileRows,
                    .terms = i,
                    .sums = std::span(&sums, 1),
                    .width = kTileRows});
    }
    for (std::uint64_t begin = columns_.first + columns_.count; begin < format_.columns; begin += kLargestGroup) {
      const std::size_t count = std::min<std::uint64_t>(kLargestGroup, format_.columns - begin);
      std::array<const float*, kLargestGroup> left{};
      for (std::size_t i = 0; i < count; ++i) {
        left[i] = feedback_.weights(begin + i) + columns_.first;
        rows_[i] = tile_.gaps[begin + i].data();
      }
      add_products({.left = std::span(left).first(count),
                    .right = buffers_.change.front().data(),
                    .right_stride = kTileRows,
                    .terms = columns_.count,
                    .sums = std::span(rows_).first(count),
                    .width = kTileRows});
    }
  }

  template <Affine kAffine>
  static float bias_of(float scale, float offset) {
    return kAffine == Affine::kScaleBias ? offset : -offset * scale;
  }

  const RowFormat& format_;
  const Feedback& feedback_;
  Tile& tile_;
  RefineBuffers buffers_;
  Span columns_{};
  GroupLanes* parameters_ = nullptr;
  std::array<const float*, kLargestGroup> near_{};
  std::array<float*, kLargestGroup> rows_{};
};

}  // namespace

void refine_tile(const RowFormat& format, const Feedback& feedback, unsigned passes, Tile& tile) {
  Refiner refiner(format, feedback, tile);
  for (unsigned pass = 0; pass < passes; ++pass) {
    for (std::uint64_t i = 0; i < span_count(format); ++i) {
      if (format.affine == Affine::kScaleBias) {
        refiner.refine<Affine::kScaleBias>(span_of(format, i));
      } else {
        refiner.refine<Affine::kScaleZero>(span_of(format, i));
      }
    }
  }
}

std::uint64_t refine_bytes() {
  return sizeof(Refiner) + 4 * kLargestGroup * sizeof(Lanes) + kTermsAtOnce * (sizeof(Lanes) + kLargestGroup * sizeof(float));
}

}  // namespace ballast
