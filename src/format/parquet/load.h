#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/parquet/parquet.h"

namespace ballast::parquet {

inline constexpr const char* kLibraryFile = "libballast_parquet.so";

// Where ballast_parquet may be, best first: beside the file that holds this code and beside the program, in the folder above,
// where tests find it in a build tree, and where an install has its libraries. Last the bare name, for the system's own search.
std::vector<std::string> library_places();

// Loads the first of these files that is there.
Result<const Library*> load_library_from(std::span<const std::string> places);

}  // namespace ballast::parquet
