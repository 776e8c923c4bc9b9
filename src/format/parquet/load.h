#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/parquet/parquet.h"

namespace ballast::parquet {

inline constexpr const char* kLibraryFile = "libballast_parquet.so";

// Where to look for libballast_parquet, in order: for both the file that contains this code and the program, its folder, the
// folder above (the build tree) and the library folder of an installation. Last comes the bare name, for the search of the
// system.
std::vector<std::string> library_places();

// Loads the first of these files that exists.
Result<const Library*> load_library_from(std::span<const std::string> places);

}  // namespace ballast::parquet
