#include "format/parquet/entry.h"

const char* ballast_parquet_interface() { return "0.0.1-0123456789ab"; }

const ballast::parquet::Library* ballast_parquet_library() { return nullptr; }
