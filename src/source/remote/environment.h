#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>

namespace ballast::remote {

// The first of these variables that is set and not empty.
inline std::string environment(std::initializer_list<const char*> names, std::string otherwise = {}) {
  for (const char* const name : names) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as safe as those who call setenv
    if (value != nullptr && *value != '\0') return value;
  }
  return otherwise;
}

}  // namespace ballast::remote
