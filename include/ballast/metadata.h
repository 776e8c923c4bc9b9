#pragma once

#include <functional>
#include <map>
#include <string>

namespace ballast {

// The free-form text that a weights file carries beside its tensors: `__metadata__` of SafeTensors.
using Metadata = std::map<std::string, std::string, std::less<>>;

}  // namespace ballast
