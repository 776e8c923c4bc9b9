#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/quality.h"
#include "quantize/rows.h"

namespace ballast {

// Converts values of any dtype to floats.
void load_values(DType dtype, const std::byte* in, std::size_t count, std::span<float> out);

// Adjacent whole groups, to be quantized to codes of one byte each.
struct GroupRun {
  const RowFormat& format;
  std::size_t groups;
  const float* values;
  const float* importance;  // one for each value, or null
  std::uint8_t* codes;
  // scales and offsets are rounded to the stored dtype
  float* scales;
  float* offsets;
  std::span<const std::byte> next;  // the input that follows, to prefetch
  DType weights = DType::kF32;      // of the input
};

// What a scale of 0 becomes where none may be 0: the distance from 1 to the next number, as in compressed-tensors.
constexpr float least_scale(DType dtype) { return dtype == DType::kF32 ? 0x1p-23F : dtype == DType::kF16 ? 0x1p-10F : 0x1p-7F; }

// The methods, each with the best instruction set of the machine.
void rtn_groups(const GroupRun& run);
void search_groups(const GroupRun& run);
void hqq_groups(const GroupRun& run);
// With offsets that are codes, see has_whole_zero(). Round to nearest has the scales of compressed-tensors.
void round_whole_zero_groups(const GroupRun& run);
void search_whole_zero_groups(const GroupRun& run);
// Of float types, whose scale is the largest magnitude as in MLX, or has the least squared error.
void round_elements(const GroupRun& run);
void search_elements(const GroupRun& run);

// Of types whose scales are floats, in steps, because groups may have several rows.
// Raises `largest`, one for each group, to the largest magnitudes.
void raise_largest(const GroupRun& run, float* largest);
// The scales that are tried for a group with this largest magnitude; the first is that of round to nearest.
inline constexpr std::size_t kScalesToTry = 16;
void scales_to_try(const RowFormat& format, float largest, float* scales);
// Adds the squared errors with each of these scales, for each group.
void add_errors_of_scales(const GroupRun& run, const float* scales, float* errors);
// Finds the codes for the scales of the run.
void code_elements(const GroupRun& run);

// Groups that are quantized.
struct CodedGroups {
  const RowFormat& format;
  std::size_t groups;
  const std::uint8_t* codes;
  const float* scales;
  const float* offsets;
};

// Dequantizes.
void decode_groups(const CodedGroups& coded, float* out);

// Sums the errors against `values`, in 16 lanes on every processor, so that the result does not depend on it.
QualitySums compare_groups(const CodedGroups& coded, const float* values);
// The same for values that are decoded; `count` is a multiple of 16.
QualitySums compare_values(const float* decoded, const float* values, std::size_t count);

}  // namespace ballast
