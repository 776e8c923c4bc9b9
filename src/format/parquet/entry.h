#pragma once

#include "format/parquet/parquet.h"

// The symbols that the core looks up in libballast_parquet.
extern "C" {
// The version of the headers that both sides must have been compiled with.
const char* ballast_parquet_interface();
const ballast::parquet::Library* ballast_parquet_library();
}
