#pragma once

#include <span>

#include <ballast/model.h>

namespace ballast {

// Uses the metadata `modality`, else the metadata `architecture`, else a vote of the tensor names.
Modality detect_modality(const Metadata& metadata, std::span<const TensorInfo> tensors);

}  // namespace ballast
