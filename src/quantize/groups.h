#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/quality.h"
#include "quantize/rows.h"

namespace ballast {

// Values of any dtype as floats, from `in` on.
void load_values(DType dtype, const std::byte* in, std::size_t count, std::span<float> out);

// Whole groups that lie side by side, on their way to codes of a byte each.
struct GroupRun {
  const RowFormat& format;
  std::size_t groups;
  const float* values;
  const float* importance;  // one for each value, or null
  std::uint8_t* codes;
  float* scales;  // these two come out rounded to what is stored
  float* offsets;
  std::span<const std::byte> next;  // what is read after these, to be on its way from memory meanwhile
};

// The schemes, each with the best instruction set that the machine has.
void rtn_groups(const GroupRun& run);
void search_groups(const GroupRun& run);
void hqq_groups(const GroupRun& run);

// The same when it is done.
struct CodedGroups {
  const RowFormat& format;
  std::size_t groups;
  const std::uint8_t* codes;
  const float* scales;
  const float* offsets;
};

// The numbers that the codes stand for.
void decode_groups(const CodedGroups& coded, float* out);

// Adds up how far they are from `values`, in 16 lanes, whatever the processor has.
QualitySums compare_groups(const CodedGroups& coded, const float* values);

}  // namespace ballast
