#pragma once

#include <memory>
#include <vector>

#include "format/tensor_writer.h"

namespace ballast::mlx_json {

// Writes one file. Pieces must come one at a time, in the order in which the tensors were declared.
Result<std::unique_ptr<TensorWriter>> create_writer(Output output, std::vector<TensorSpec> tensors,
                                                    const TensorWriterOptions& options);

}  // namespace ballast::mlx_json
