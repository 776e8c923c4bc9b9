#pragma once

#include <span>
#include <vector>

#include "source/remote/remote_file.h"
#include "source/source.h"

namespace ballast::remote {

// Plans the requests for `ranges`, which must be sorted by offset. Ranges that are close share a request if at most half of its
// bytes are discarded. Large requests are split over several connections.
std::vector<Transfer> plan_transfers(std::span<const Range> ranges);

}  // namespace ballast::remote
