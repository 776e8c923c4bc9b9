#pragma once

#include <memory>
#include <span>

#include "format/tensor_writer.h"

namespace ballast::safetensors {

// One file, or in a directory shards with their index. Takes pieces in any order, from many threads at once.
Result<std::unique_ptr<TensorWriter>> create_writer(Output output, std::span<const TensorSpec> tensors,
                                                    const TensorWriterOptions& options);

}  // namespace ballast::safetensors
