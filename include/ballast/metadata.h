#pragma once

#include <functional>
#include <map>
#include <string>

namespace ballast {

// The free-form key-value pairs of a weights file: `__metadata__` in SafeTensors.
using Metadata = std::map<std::string, std::string, std::less<>>;

}  // namespace ballast
