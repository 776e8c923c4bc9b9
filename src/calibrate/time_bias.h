#pragma once

#include <cstddef>
#include <span>

#include "calibrate/time_groups.h"
#include "quantize/rows.h"
#include "scheme/writer.h"

namespace ballast {

// Compensates, on average, for the error of each row in each group of timesteps: -e·m for the error e of a row and the mean m of
// the inputs, to be added to the layer's output. 0 where m is too uncertain to lower the error. `out` is [groups, rows].
void make_time_bias(const RowFormat& format, DType dtype, std::span<const std::byte> rows, const CodedRows& coded,
                    const GroupStatistics& groups, std::span<float> out);

// For the inputs of each group of timesteps, from their minimum and maximum.
ActivationScales activation_scales(const GroupStatistics& groups);

}  // namespace ballast
