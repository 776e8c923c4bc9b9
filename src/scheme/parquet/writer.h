#pragma once

#include <memory>
#include <string>

#include "scheme/writer.h"

namespace ballast {

// The plan must outlive the writer.
Result<std::unique_ptr<QuantizedWriter>> create_parquet_writer(const std::string& directory, const OutputPlan& plan, bool sync);

}  // namespace ballast
