#pragma once

#include "format/parquet/parquet.h"

// What the core looks up in ballast_parquet.
extern "C" {
// Names the headers that both sides must have been compiled with.
const char* ballast_parquet_interface();
const ballast::parquet::Library* ballast_parquet_library();
}
