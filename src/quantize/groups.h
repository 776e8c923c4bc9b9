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

// The methods, each with the best instruction set of the machine.
void rtn_groups(const GroupRun& run);
void search_groups(const GroupRun& run);
void hqq_groups(const GroupRun& run);
// Of float types, whose scale is the largest magnitude as in MLX, or has the least squared error.
void round_elements(const GroupRun& run);
void search_elements(const GroupRun& run);

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

}  // namespace ballast
