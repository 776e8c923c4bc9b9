#include "format/parquet/library.h"

#include "format/parquet/entry.h"

const char* ballast_parquet_interface() { return BALLAST_PARQUET_INTERFACE; }

const ballast::parquet::Library* ballast_parquet_library() {
  static constexpr ballast::parquet::Library kLibrary{.create_writer = ballast::parquet::create_writer,
                                                      .open_reader = ballast::parquet::open_reader};
  return &kLibrary;
}
