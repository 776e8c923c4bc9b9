#pragma once

#include <ballast/time_aware.h>

#include "scheme/time_aware_table.h"

namespace ballast {

TimeAware make_time_aware(TimeAwareTable table);

}  // namespace ballast
