#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "scheme/writer.h"

namespace ballast {

// The plan must outlive the writer.
Result<std::unique_ptr<QuantizedWriter>> create_mlx_writer(const std::string& directory, const OutputPlan& plan, bool sync);

// All files of weights that a writer would make.
Result<std::uint64_t> mlx_file_bytes(const OutputPlan& plan);

// OutputPlan::key of the output in a directory; empty if there is no complete one.
std::string finished_mlx_key(const std::string& directory);

}  // namespace ballast
