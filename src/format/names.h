#pragma once

#include <span>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

namespace ballast {

// Refuses, with kInvalidArgument, names and metadata that no format here can hold: those that repeat, and those that are not
// UTF-8.
Result<void> check_names(std::span<const TensorSpec> tensors, const Metadata& metadata);

}  // namespace ballast
