#pragma once

#include <span>
#include <vector>

#include "source/remote/remote_file.h"
#include "source/source.h"

namespace ballast::remote {

// The requests that fetch `ranges`, which are in order of their offsets. Neighbours share one while no more than half of it is
// thrown away; large ones are cut, so that several connections share them.
std::vector<Transfer> plan_transfers(std::span<const Range> ranges);

}  // namespace ballast::remote
