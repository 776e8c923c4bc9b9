#pragma once

#include <memory>
#include <span>
#include <vector>

#include "format/tensor_writer.h"

namespace ballast {

Result<std::unique_ptr<FileSink>> create_mlx_json_sink(Output output, std::vector<TensorSpec> tensors, const SinkOptions& options,
                                                       std::span<const Companion> companions);

}  // namespace ballast
