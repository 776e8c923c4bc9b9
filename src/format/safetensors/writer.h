#pragma once

#include <memory>
#include <span>

#include "format/tensor_writer.h"

namespace ballast {

Result<std::unique_ptr<FileSink>> create_safetensors_sink(Output output, std::span<const TensorSpec> tensors,
                                                          const SinkOptions& options, const SinkExtras& extras);

}  // namespace ballast
