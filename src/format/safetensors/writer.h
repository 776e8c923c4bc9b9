#pragma once

#include <memory>
#include <span>

#include "format/tensor_writer.h"

namespace ballast::safetensors {

// Writes one file, or shards with an index into a directory. Accepts pieces in any order, from many threads at once.
Result<std::unique_ptr<TensorWriter>> create_writer(Output output, std::span<const TensorSpec> tensors,
                                                    const TensorWriterOptions& options);

}  // namespace ballast::safetensors
