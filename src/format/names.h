#pragma once

#include <span>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor_spec.h>

namespace ballast {

// Fails with kInvalidArgument if a name is a duplicate, or if a name or metadata is not UTF-8.
Result<void> check_names(std::span<const TensorSpec> tensors, const Metadata& metadata);

}  // namespace ballast
