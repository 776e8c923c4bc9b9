#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "scheme/tensors_scheme.h"

namespace ballast {

// All are borrowed by the writer.
Result<std::unique_ptr<QuantizedWriter>> create_tensors_writer(const TensorsScheme& scheme, const std::string& directory,
                                                               const OutputPlan& plan, bool sync);

// All files of weights that a writer would make.
Result<std::uint64_t> tensors_file_bytes(const TensorsScheme& scheme, const OutputPlan& plan);

// OutputPlan::key of the output in a directory; empty if there is no complete one.
std::string finished_tensors_key(const std::string& directory);

}  // namespace ballast
