#pragma once

#include <span>

#include <ballast/model.h>

namespace ballast {

// Metadata `modality` decides, else metadata `architecture`, else the names of the tensors by vote.
Modality detect_modality(const Metadata& metadata, std::span<const TensorInfo> tensors);

}  // namespace ballast
