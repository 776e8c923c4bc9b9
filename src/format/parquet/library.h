#pragma once

#include "format/parquet/parquet.h"

namespace ballast::parquet {

Result<std::unique_ptr<Writer>> create_writer(Append append, const WriterOptions& options);
Result<std::unique_ptr<Reader>> open_reader(const Source& source);

}  // namespace ballast::parquet
