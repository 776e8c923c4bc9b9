#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "base/text.h"

namespace ballast::remote {

// The value of the first of these variables that is set and not empty.
inline std::string environment(std::initializer_list<const char*> names, std::string otherwise = {}) {
  for (const char* const name : names) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): Ballast never calls setenv
    if (value != nullptr && *value != '\0') return value;
  }
  return otherwise;
}

// Whether the first of these variables that is set has the value 1, on, yes or true.
inline bool is_enabled(std::initializer_list<const char*> names) {
  const std::string value = lowercase(environment(names));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

}  // namespace ballast::remote
